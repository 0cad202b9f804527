#!/usr/bin/env bash
# The table of signals. Ctrl-C goes to every process of the terminal's group at once, and a scheduler may signal any one
# rank: the work is committed before the job ends, and the resumed run has the losses of the uninterrupted one.
source "$(dirname "$0")/lib.sh"
set -m  # each background job is a process group of its own, with SIGINT as a terminal gives it
steps=1000  # so many that none is through before its signal
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

# No thread of a process is ended by a signal that saves, nor runs a handler for one on whatever stack it is on. One
# that waits for them shows as not blocked: the launcher's first.
holds_all() {
    local process=$1 task text mask
    [ "$(ls /proc/"$process"/task | wc -l)" -ge 2 ] || { echo "one thread: nothing to look at"; return 1; }
    for task in /proc/"$process"/task/*/status; do
        text=$(cat "$task" 2> /dev/null) || continue  # the thread has ended
        mask=$((16#$(sed -n 's/^SigCgt:[[:space:]]*//p' <<< "$text")))
        ((mask & 0x4203)) && { echo "$task: it has a handler"; return 1; }
        mask=$((16#$(sed -n 's/^SigBlk:[[:space:]]*//p' <<< "$text")))
        if [ "$task" = "/proc/$process/task/$process/status" ]; then
            ((mask & 0x80a04ec)) && { echo "$task: blocks what the system has otherwise"; return 1; }
            [ -z "${2:-}" ] || continue
        fi
        (((mask & 0x4203) == 0x4203)) || { echo "$task: not blocked"; return 1; }
    done
    return 0
}
job_holds_all() {
    local rank
    holds_all "$1" launcher || fail "$2: the launcher"
    for rank in $(ranks_of "$1"); do holds_all "$rank" || fail "$2: a rank"; done
}
built() { [ -e "$(dirname "$orrery")/plugins/liborrery_transport_$1.so" ] && echo "$1" || echo shm; }

tiny_exec=exec run_tiny ctrl_c $steps $slow > ctrl_c.log 2>&1 &
launcher=$!
wait_for steps_done ctrl_c 4 || { cat ctrl_c.log; fail "ctrl_c: no steps"; }
job_holds_all $launcher ctrl_c
kill -INT -$launcher
wait $launcher
committed ctrl_c 130 $?
resumes ctrl_c

tiny_exec=exec run_tiny hang_up $steps $slow --set run.transport="$(built ucx)" > hang_up.log 2>&1 &
launcher=$!
wait_for steps_done hang_up 4 || { cat hang_up.log; fail "hang_up: no steps"; }
job_holds_all $launcher hang_up
kill -HUP -$launcher
wait $launcher
committed hang_up 75 $?

# One rank is the command itself.
tiny_exec=exec run_tiny alone $steps $slow --set mesh.dp=1 > alone.log 2>&1 &
launcher=$!
wait_for steps_done alone 4 || { cat alone.log; fail "alone: no steps"; }
kill -INT -$launcher
wait $launcher
committed alone 130 $?

for signal in TERM USR1; do
    for rank in 0 1; do
        name=rank${rank}_$signal
        through=$([ $name = rank0_USR1 ] && built gloo || echo shm)
        tiny_exec=exec run_tiny $name $steps $slow --set run.transport=$through > $name.log 2>&1 &
        launcher=$!
        wait_for steps_done $name 4 || { cat $name.log; fail "$name: no steps"; }
        job_holds_all $launcher $name
        kill -$signal "$(ranks_of $launcher | sed -n "$((rank + 1))p")"
        wait $launcher
        committed $name 75 $?
    done
done
resumes rank1_TERM

# Twice: at once, however long a step takes. One rank, and two.
huge="--set data.tokens_per_sequence=64 --set train.sequences_per_step=64 --set data.validation=0"
huge+=" --set script.layers=2 --set script.embed=512 --set script.heads=4"
for ranks in 1 2; do
    name=twice$ranks
    tiny_exec=exec run_tiny $name $steps $slow $huge --set mesh.dp=$ranks > $name.log 2>&1 &
    launcher=$!
    wait_for grep -q "grad_norm" $name.log || { cat $name.log; fail "$name: no training"; }
    kill -INT -$launcher
    sleep 0.2
    kill -INT -$launcher 2> /dev/null
    wait $launcher
    code=$?
    [ $code -eq 130 ] || { cat $name.log; fail "$name: exit code $code, expected 130"; }
    ! grep -qE "committed|killed|did not end" $name.log || { cat $name.log; fail "$name: not at once, or with noise"; }
done

# In the start there is nothing to save; a command that never has anything is ended as the system does it.
echo "while true do end" > endless.lua
for case in "run TERM 75" "run USR1 75" "run HUP 75" "run INT 130" "check TERM 143" "check USR1 138" \
    "bench TERM 143"; do
    read -r command signal expected <<< "$case"
    script=(endless.lua --set lua.instructions_million=4000000)
    [ "$command" != bench ] || script=(all_reduce --ranks 2 --iters 1000000)
    $orrery "$command" "${script[@]}" > start.log 2>&1 &
    launcher=$!
    sleep 0.5
    kill -$signal $launcher
    wait $launcher
    code=$?
    [ $code -eq "$expected" ] || { cat start.log; fail "$case in the start: exit code $code"; }
    [ "$command" != run ] || grep -q "stopped by signal .* with nothing to save" start.log || fail "$case: no word"
done

# After a training there is nothing to save either, whatever the script goes on with.
{
    cat "$source_root/scripts/gpt.lua"
    echo 'local function saved() local f = io.open("after/metrics.jsonl") if f then f:close() end return f end'
    echo 'while saved() do end'
} > after.lua
$orrery run after.lua --set run.folder=after --set mesh.dp=2 --set data.path=text.txt \
    --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=5 --set script.layers=1 \
    --set script.embed=48 --set 'lua.allow=["io"]' --set lua.instructions_million=4000000 > after.log 2>&1 &
launcher=$!
wait_for grep -q "where the time went" after.log || { cat after.log; fail "after: no end of training"; }
kill -USR1 $launcher
wait $launcher
code=$?
[ $code -eq 75 ] || { cat after.log; fail "after: exit code $code, expected 75"; }
[ -d after/checkpoints/step-00000005 ] || { cat after.log; fail "after: no checkpoint"; }

# A script that catches the end of its training and goes on: the first signal is not forgotten, a second one ends it.
saved='local function saved() local f = io.open("caught/metrics.jsonl") if f then f:close() end return f end'
for rest in 'print("caught")' "$saved while saved() do end"; do
    rm -rf caught
    sed 's/^run:train(data).*/pcall(run.train, run, data) /' "$source_root/scripts/gpt.lua" > caught.lua
    echo "$rest" >> caught.lua
    $orrery run caught.lua --set run.folder=caught --set data.path=text.txt --set data.tokens_per_sequence=32 \
        --set train.sequences_per_step=4 --set train.steps=100000 --set script.layers=1 --set script.embed=48 \
        --set 'lua.allow=["io"]' --set lua.instructions_million=4000000 > caught.log 2>&1 &
    launcher=$!
    wait_for steps_done caught 3 || { cat caught.log; fail "caught: no steps"; }
    kill -TERM $launcher
    if [[ $rest == *while* ]]; then
        wait_for grep -q "step [0-9]* committed" caught.log || { cat caught.log; fail "caught: no checkpoint"; }
        until_ended() { kill -TERM $launcher 2> /dev/null || return 0; sleep 0.5; return 1; }
        wait_for until_ended || fail "caught: further signals do not end it"
    fi
    wait $launcher
    code=$?
    [ $code -eq 75 ] || { cat caught.log; fail "caught, then $rest: exit code $code, expected 75"; }
done

# What nobody reads is dropped, and what is ignored stays so: the run goes on.
run_tiny unread 12 2>&1 | head -n 1 > /dev/null
code=${PIPESTATUS[0]}
[ "$code" -eq 0 ] || fail "nobody reads: exit code $code, expected 0"
[ "$(losses unread | wc -l)" -eq 12 ] || fail "nobody reads: $(losses unread | wc -l) steps, expected 12"
(trap '' HUP; tiny_exec=exec run_tiny nohup $steps $slow --set run.transport="$(built ucx)" > nohup.log 2>&1) &
launcher=$!
wait_for steps_done nohup 4 || { cat nohup.log; fail "nohup: no steps"; }
kill -HUP -$launcher
wait $launcher
code=$?
[ $code -eq 0 ] || { cat nohup.log; fail "nohup: exit code $code, expected 0"; }

# What a script starts has its signals as the system has them.
for call in 'os.execute("sh mask.sh")' 'io.popen("sh mask.sh"):close()'; do
    echo "$call while true do end" > starts.lua
    echo "grep SigBlk /proc/self/status > mask" > mask.sh
    rm -f mask
    $orrery run starts.lua --set 'lua.allow=["os","io"]' --set lua.instructions_million=4000000 > starts.log 2>&1 &
    launcher=$!
    wait_for [ -s mask ] || { cat starts.log; fail "$call: not run"; }
    kill -TERM $launcher
    wait $launcher
    [ $? -eq 75 ] || { cat starts.log; fail "$call: exit code"; }
    grep -q ":[[:space:]]*0*$" mask || { cat mask; fail "$call: signals are blocked"; }
done
echo "SIGINT and SIGHUP to the group, SIGTERM and SIGUSR1 to either rank: committed, and resumed bit for bit"
echo "1 passed, 0 failed"
