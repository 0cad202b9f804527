#!/usr/bin/env bash
# SIGKILL of either rank in any phase: the other ends within 5 s and says why, nothing is left behind, and a resumed
# run has the losses and gradient norms of the uninterrupted one, bit for bit.
# Runs alone: it limits the time to an end in milliseconds.
source "$(dirname "$0")/lib.sh"
steps=200  # so many that no machine is through before the kill
run_tiny whole $steps > whole.log 2>&1 || { cat whole.log; fail "the uninterrupted run"; }
losses whole > whole.txt
[ "$(wc -l < whole.txt)" -eq $steps ] || fail "the uninterrupted run has $(wc -l < whole.txt) of $steps step lines"

# The shared memory of this test's jobs: processes started here that hold or map a segment, which has no name on disk.
segments() {
    local folder
    for folder in /proc/[0-9]*; do
        [ "$(readlink "$folder/cwd" 2> /dev/null)" = "$work" ] || continue
        { ls -l "$folder/fd"; cat "$folder/maps"; } 2> /dev/null | grep -q 'memfd:orrery-shm' && echo "${folder#/proc/}"
    done
}

# While a job runs each of its ranks is seen to hold one: otherwise this test would miss a leak.
tiny_exec=exec run_tiny held 100000 > held.log 2>&1 &
holder=$!
wait_for steps_done held 1 || { cat held.log; fail "the job that holds segments"; }
[ "$(segments | wc -l)" -ge 2 ] || fail "no rank was seen to hold a shared-memory segment"
kill -TERM $holder
wait $holder

# drill NAME RANK PHASE...: start, wait for the phase, kill the rank, look, resume. The run may be over
# before the kill: then once more.
drill() {
    local try
    for try in 1 2 3 4 5; do
        drill_once "$@"
        [ $? -eq 2 ] || return 0
        rm -rf "$1"
    done
    fail "$1: the rank had already ended, five times"
}

drill_once() {
    local name=$1 rank=$2
    shift 2
    tiny_exec=exec run_tiny "$name" $steps ${drill_arguments:-} > "$name.log" 2>&1 &
    local launcher=$!
    wait_for two_ranks $launcher || { cat "$name.log"; fail "$name: the ranks did not start"; }
    wait_for "$@" || { cat "$name.log"; fail "$name: the phase did not come"; }
    local pids victim begin
    pids=$(ranks_of $launcher)
    victim=$(echo "$pids" | sed -n "$((rank + 1))p")
    begin=$(date +%s%N)
    if [ -z "$victim" ] || ! kill -9 "$victim" 2>/dev/null; then
        wait $launcher || { cat "$name.log"; fail "$name: the run ended by itself with $?"; }
        return 2
    fi
    wait $launcher
    local code=$? took=$((($(date +%s%N) - begin) / 1000000))
    [ $code -eq 1 ] || { cat "$name.log"; fail "$name: exit code $code, expected 1"; }
    [ $took -le 5000 ] || { cat "$name.log"; fail "$name: ended after $took ms, expected at most 5000"; }
    grep -q "rank $rank (pid $victim) was killed by signal 9" "$name.log" ||
        { cat "$name.log"; fail "$name: the dead rank is not named"; }
    local pid
    for pid in $pids; do [ ! -e "/proc/$pid" ] || fail "$name: process $pid is left"; done
    echo "$name: rank $rank killed, ended after $took ms:" \
        "$(grep -m1 'rank '$((1 - rank))'\]' "$name.log" | cut -c1-160)"
    run_tiny "$name" $steps > "$name.resumed.log" 2>&1 || { cat "$name.resumed.log"; fail "$name: the resumed run"; }
    losses "$name" > "$name.txt"
    cmp whole.txt "$name.txt" ||
        { diff whole.txt "$name.txt" | head -6; fail "$name: another trajectory after resuming"; }
}

always() { true; }
checkpoint_begins() { ls "$1"/checkpoints 2>/dev/null | grep -q .; }
drill start0 0 always
drill start1 1 always
# Without checkpoints, so that the kill falls into a step.
drill_arguments="--set checkpoint.every_steps=0 --set train.evaluate_every=0"
drill step0 0 steps_done step0 3
drill step1 1 steps_done step1 14
drill_arguments="$drill_arguments --set run.overlap=on"
drill beside0 0 steps_done beside0 5
drill_arguments=
drill save0 0 checkpoint_begins save0
drill save1 1 checkpoint_begins save1
drill eval0 0 steps_done eval0 20
drill eval1 1 steps_done eval1 40

# in_step TRANSPORT RANK: killed in some step of a long run, where the survivor's own words name the operation that it
# waited in.
in_step() {
    local transport=$1 rank=$2 name=$1_$2 launcher victim begin code took own
    tiny_exec=exec run_tiny "$name" 100000 --set run.transport="$transport" --set checkpoint.every_steps=0 \
        --set train.evaluate_every=0 > "$name.log" 2>&1 &
    launcher=$!
    wait_for steps_done "$name" 3 || { cat "$name.log"; fail "$name: no steps"; }
    victim=$(ranks_of $launcher | sed -n "$((rank + 1))p")
    begin=$(date +%s%N)
    kill -9 "$victim" || { cat "$name.log"; fail "$name: no rank to kill"; }
    wait $launcher
    code=$? took=$((($(date +%s%N) - begin) / 1000000))
    [ $code -eq 1 ] || { tail "$name.log"; fail "$name: exit code $code, expected 1"; }
    [ $took -le 5000 ] || { tail "$name.log"; fail "$name: ended after $took ms, expected at most 5000"; }
    grep -q "rank $rank (pid $victim) was killed by signal 9" "$name.log" ||
        { tail "$name.log"; fail "$name: the dead rank is not named"; }
    own=$(grep -A1 "\[rank $((1 - rank))\]" "$name.log")  # the reason, then the place
    [[ $own =~ "instruction "[0-9]+": "(all_reduce|broadcast|all_gather) ]] ||
        { tail "$name.log"; fail "$name: the survivor does not name its operation: $own"; }
    echo "$name: rank $rank killed, ended after $took ms: $(cut -c1-160 <<< "${own%%$'\n'*}")"
}
for transport in shm gloo; do
    in_step $transport 0
    in_step $transport 1
done
[ -z "$(segments)" ] || fail "shared-memory segments are left: $(segments)"
echo "1 passed, 0 failed"
