#!/usr/bin/env bash
# SIGTERM and SIGUSR1 to the launcher: a checkpoint at a step that both ranks agree on, exit 75, and an exact resume.
source "$(dirname "$0")/lib.sh"
steps=200  # so many that no machine is through before the signal
run_tiny whole $steps > whole.log 2>&1 || { cat whole.log; fail "the uninterrupted run"; }
losses whole > whole.txt
for signal in TERM USR1; do
    folder=by_$signal
    tiny_exec=exec run_tiny $folder $steps > $folder.log 2>&1 &
    launcher=$!
    wait_for steps_done $folder 4 || { cat $folder.log; fail "$signal: no steps"; }
    kill -$signal $launcher
    wait $launcher
    code=$?
    [ $code -eq 75 ] || { cat $folder.log; fail "$signal: exit code $code, expected 75"; }
    grep -q "the checkpoint is committed" $folder.log || { cat $folder.log; fail "$signal: no word of the checkpoint"; }
    run_tiny $folder $steps > $folder.resumed.log 2>&1 || { cat $folder.resumed.log; fail "$signal: the resumed run"; }
    grep -q "resumed from step" $folder.resumed.log || { cat $folder.resumed.log; fail "$signal: it did not resume"; }
    losses $folder > $folder.txt
    cmp whole.txt $folder.txt || fail "$signal: another trajectory after resuming"
done
echo "1 passed, 0 failed"
