#!/usr/bin/env bash
# Ctrl-C goes to every process of the terminal's group at once, and a scheduler may signal any one rank: the work is
# committed before the job ends, and the resumed run has the losses of the uninterrupted one.
source "$(dirname "$0")/lib.sh"
set -m  # each background job is a process group of its own, with SIGINT as a terminal gives it
steps=300
run_tiny whole $steps > whole.log 2>&1 || { cat whole.log; fail "the uninterrupted run"; }
losses whole > whole.txt
slow="--set checkpoint.every_steps=0 --set train.evaluate_every=0"

# committed NAME EXPECTED CODE: the exit code, the checkpoint, and the same trajectory after resuming.
committed() {
    local name=$1
    shift
    [ "$2" -eq "$1" ] || { cat "$name.log"; fail "$name: exit code $2, expected $1"; }
    grep -q "the checkpoint is committed" "$name.log" || { cat "$name.log"; fail "$name: no word of the checkpoint"; }
    [ "$(ls "$name/checkpoints" | grep -c '^step-[0-9]*$')" -ge 1 ] || fail "$name: no checkpoint"
}
resumes() {
    local name=$1
    run_tiny "$name" $steps > "$name.resumed.log" 2>&1 || { cat "$name.resumed.log"; fail "$name: the resumed run"; }
    grep -q "resumed from step" "$name.resumed.log" || { cat "$name.resumed.log"; fail "$name: it did not resume"; }
    losses "$name" > "$name.txt"
    cmp whole.txt "$name.txt" || fail "$name: another trajectory after resuming"
}

# Every other thread of the launcher leaves its signals to the one that forwards them: none can end it by default. That
# one waits for them, which shows as not blocked.
all_hold_signals() {
    local task blocked
    [ "$(ls /proc/"$1"/task | wc -l)" -ge 2 ] || { echo "one thread: nothing to look at"; return 1; }
    for task in /proc/"$1"/task/*/status; do
        [ "$task" != "/proc/$1/task/$1/status" ] || continue
        blocked=$(sed -n 's/^SigBlk:[[:space:]]*//p' "$task")
        (((16#$blocked >> 14) & 1)) || { echo "$task: SIGTERM is not blocked"; return 1; }
        (((16#$blocked >> 1) & 1)) || { echo "$task: SIGINT is not blocked"; return 1; }
    done
}

tiny_exec=exec run_tiny ctrl_c $steps $slow > ctrl_c.log 2>&1 &
launcher=$!
wait_for steps_done ctrl_c 4 || { cat ctrl_c.log; fail "ctrl_c: no steps"; }
all_hold_signals $launcher || fail "ctrl_c: a thread of the launcher would die of a signal"
kill -INT -$launcher
wait $launcher
committed ctrl_c 130 $?
resumes ctrl_c

tiny_exec=exec run_tiny hang_up $steps $slow > hang_up.log 2>&1 &
launcher=$!
wait_for steps_done hang_up 4 || { cat hang_up.log; fail "hang_up: no steps"; }
kill -HUP -$launcher
wait $launcher
committed hang_up 75 $?

# One rank is the command itself.
tiny_exec=exec run_tiny alone $steps $slow --set mesh.dp=1 > alone.log 2>&1 &
launcher=$!
wait_for steps_done alone 4 || { cat alone.log; fail "alone: no steps"; }
kill -INT -$launcher
wait $launcher
committed alone 75 $?

for signal in TERM USR1; do
    for rank in 0 1; do
        name=rank${rank}_$signal
        tiny_exec=exec run_tiny $name $steps $slow > $name.log 2>&1 &
        launcher=$!
        wait_for steps_done $name 4 || { cat $name.log; fail "$name: no steps"; }
        kill -$signal "$(ranks_of $launcher | sed -n "$((rank + 1))p")"
        wait $launcher
        committed $name 75 $?
    done
done
resumes rank1_TERM
echo "SIGINT and SIGHUP to the group, SIGTERM and SIGUSR1 to either rank: committed, and resumed bit for bit"
echo "1 passed, 0 failed"
