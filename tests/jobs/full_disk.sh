#!/usr/bin/env bash
# A disk that takes no more in the middle of a checkpoint: exit code 1 and the reason, the checkpoint before it as it
# was, and the job goes on from it, bit for bit, once there is room. The limit is one on a file's size (EFBIG), which
# needs no rights; the store's own tests fill a real disk. Over gloo, whose arenas are no files.
source "$(dirname "$0")/lib.sh"
steps=400 limit_kib=400
run() { run_tiny "$@" --set run.transport=gloo --set checkpoint.every_steps=150 --set train.evaluate_every=0; }
checkpoints() { (cd "$1/checkpoints" && find . -type f ! -name 'generation-*' -exec sha256sum {} + | sort -k 2); }

run whole $steps > whole.log 2>&1 || { cat whole.log; fail "the uninterrupted run"; }
losses whole > whole.txt
[ "$(wc -l < whole.txt)" -eq $steps ] || fail "the uninterrupted run has $(wc -l < whole.txt) of $steps step lines"
# The limit stands between what a checkpoint writes and what else is written.
[ -n "$(find whole/checkpoints -size +${limit_kib}k)" ] || fail "no file of a checkpoint exceeds $limit_kib KiB"
[ -z "$(find whole -path whole/checkpoints -prune -o -type f -size +$((limit_kib / 2))k -print)" ] ||
    fail "files besides checkpoints come near $limit_kib KiB: $(find whole -type f -size +$((limit_kib / 2))k)"

tiny_exec=exec run full $steps > first.log 2>&1 &
launcher=$!
wait_for steps_done full 4 || { cat first.log; fail "no steps"; }
kill -TERM $launcher
wait $launcher
[ $? -eq 75 ] || { cat first.log; fail "the run that was to leave a checkpoint did not stop after one"; }
checkpoints full > before.txt
[ -s before.txt ] || fail "no checkpoint before the disk is full"

(
    ulimit -f $limit_kib
    run full $steps
) > full.log 2>&1
code=$?
[ $code -eq 1 ] || { cat full.log; fail "a full disk: exit code $code, expected 1"; }
grep -q "resumed from step" full.log || { cat full.log; fail "a full disk: it did not resume"; }
grep -q "cannot write the .* bytes of full/checkpoints/.*: File too large" full.log ||
    { cat full.log; fail "a full disk: the message does not say what could not be written and why"; }
checkpoints full > after.txt
cmp before.txt after.txt || { diff before.txt after.txt; fail "a full disk: the checkpoints changed"; }

# Where no save but one beside the steps meets it, that one's error ends the run.
(
    ulimit -f $limit_kib
    run beside $steps --set checkpoint.final=false
) > beside.log 2>&1
code=$?
[ $code -eq 1 ] || { cat beside.log; fail "a full disk, no last save: exit code $code, expected 1"; }
grep -q "the asynchronous save of step 150 failed: .*File too large" beside.log ||
    { cat beside.log; fail "a full disk, no last save: the message does not say which save failed and why"; }

run full $steps > resumed.log 2>&1 || { cat resumed.log; fail "the resumed run"; }
grep -q "resumed from step" resumed.log || { cat resumed.log; fail "it did not resume"; }
losses full > full.txt
cmp whole.txt full.txt || { diff whole.txt full.txt | head -6; fail "another trajectory after resuming"; }
grep -h "File too large" full.log | head -1 | cut -c1-200
echo "1 passed, 0 failed"
