#!/usr/bin/env bash
# A run goes on with the data that it began with: another file of equal length is refused, a copy is not.
source "$(dirname "$0")/lib.sh"
run_tiny run 10 > run.log 2>&1 || { cat run.log; fail "the first run"; }
tr 'a-y' 'b-z' < text.txt > other.txt
cp text.txt copy.txt
run_tiny run 12 --set data.path=other.txt > other.log 2>&1
code=$?
[ $code -eq 2 ] || { cat other.log; fail "other data: exit code $code, expected 2"; }
grep -q "the saved data_digest is" other.log || { cat other.log; fail "other data: the digest is not named"; }
run_tiny run 12 --set data.path=copy.txt > copy.log 2>&1 || { cat copy.log; fail "a copy of the data"; }
grep -q "resumed from step 10" copy.log || { cat copy.log; fail "a copy of the data: it did not resume"; }
echo "1 passed, 0 failed"
