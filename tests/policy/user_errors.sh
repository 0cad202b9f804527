#!/usr/bin/env bash
# At least 20 errors of cluster users are in the table of tests/engines/README.md, each with the test that prints it.
# $1: the source tree.
jobs=$1/tests/jobs failures=0 count=0
while IFS='|' read -r _ name script _; do
    name=$(echo $name) script=$(echo $script) count=$((count + 1))
    grep -qF "mistake: $name" "$jobs/$script" && continue
    echo "FAILED: tests/jobs/$script does not print \"mistake: $name\"" && failures=$((failures + 1))
done < <(sed -n '/^| error |/,$p' "$1/tests/engines/README.md" | tail -n +3)
[ $count -ge 20 ] || { echo "FAILED: $count user errors, expected 20 or more" && failures=$((failures + 1)); }
echo "$count user errors, $failures failed"
[ $failures -eq 0 ]
