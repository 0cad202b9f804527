#!/usr/bin/env bash
# Jobs that `orrery submit` hands to a Slurm cluster of three nodes (slurm_cluster.sh), by the batch script that it
# writes: ranks and agents, stopped and submitted again, preempted, an array, a node that is lost with a spare. Each has
# the losses of a run that was not disturbed, bit for bit.
source "$(dirname "$0")/../jobs/lib.sh"
cluster=$source_root/tests/engines/slurm_cluster.sh
bash "$cluster" start "$work" 3 || { code=$?; [ $code -eq 77 ] && echo "skipped: slurm"; exit $code; }
trap 'bash "$cluster" stop "$work"; jobs -p | xargs -r kill -9 2>/dev/null; rm -rf "$work"' EXIT
patience=90000 steps=600
: > rows.txt
ctl() { timeout 60 bash "$cluster" on "$work" ctl sh -c 'cd "$0" && exec "$@"' "$work" "$@"; }
cat > job.toml <<'TOML'
[run]
seed = 5
transport = "gloo"
threads_per_rank = 1
timeout_s = 300
join_timeout_s = 300
silence_s = 30
[mesh]
dp = 2
[data]
path = "text.txt"
tokens_per_sequence = 32
validation = 0.1
[train]
sequences_per_step = 4
evaluate_every = 0
[checkpoint]
every_steps = 20
[script]
layers = 2
embed = 48
heads = 3
[submit]
nodes = 2
time = "1:00:00"
[submit.slurm]
extra = ["#SBATCH --exclusive"]
TOML
script=$source_root/scripts/gpt.lua
trained_in plain "$script" --config job.toml --set train.steps=$steps
# submit NAME FLAGS...: the job $job, of which the run is in NAME.
submit() {
    local name=$1
    shift
    ctl "$orrery" submit "$script" --config job.toml --engine slurm --set run.folder="$name" \
        --set train.steps=$steps "$@" > said.txt 2>&1 || { cat said.txt; fail "$name: submit"; }
    job=$(sed -n 's/^job \([0-9]*\) of slurm$/\1/p' said.txt)
}
# over: the job has left the queue. One that waits for its next turn gets it now.
over() {
    local state
    state=$(ctl squeue --noheader --format=%T --jobs="$job" 2> /dev/null)
    [ -n "$state" ] || return 0
    [[ $state != *PENDING* ]] || ctl scontrol update JobId="$job" StartTime=now 2> /dev/null
    sleep 0.5
    return 1
}
trains() { wait_for steps_done "$1" 30 || { tail -n 20 "$1"/slurm-*.txt; fail "$1: does not train"; }; }
# same NAME WHAT: its job ends, with the losses of the undisturbed run.
same() {
    wait_for over || { tail -n 20 "$1"/slurm-*.txt; fail "$1: the job does not end"; }
    [ "$(losses "$1")" = "$(losses plain)" ] || { tail -n 20 "$1"/slurm-*.txt; fail "$1: other losses"; }
    row "$2" "$(cat "$1"/slurm-*.txt | grep -c 'resumed from step')"
}
row() { echo "| $1 | $2 | the same losses |" | tee -a rows.txt; }

submit ranks
same ranks "two ranks on two nodes"

submit stopped
trains stopped
first=$job
ctl "$orrery" stop stopped || fail "stop"
wait_for over || fail "stopped: it does not end"
submit stopped
[ "$job" != "$first" ] || fail "stopped: no second job"
same stopped "stopped after a save, submitted again"

submit preempted
trains preempted
low=$job
submit urgent --set submit.slurm.partition=high --set train.steps=20
wait_for over || fail "urgent: it does not end"
job=$low
same preempted "preempted by a higher partition"

submit agents --restarts 3 --spares 1 --wait-node 20
trains agents
bash "$cluster" link "$work" n2 down
same agents "agents on two nodes, one of them lost, with a spare"
grep -q '"node":1,"is":"lost"' agents/events.jsonl || { cat agents/events.jsonl; fail "agents: no node was lost"; }
bash "$cluster" link "$work" n2 up

submit array --set submit.nodes=1 --set 'submit.slurm.array="3-4"'
trains array-3
trains array-4
tasks=$job
submit urgent2 --set submit.slurm.partition=high --set train.steps=20
wait_for over || fail "urgent2: it does not end"
job=$tasks
wait_for over || fail "array: it does not end"
for task in 3 4; do
    [ "$(losses array-$task)" = "$(losses plain)" ] || fail "array-$task: other losses"
    grep -q "\"name\": \"${job}_$task\"" array-$task/job.json || { cat array-$task/job.json; fail "a task's name"; }
done
resumed=$(cat array*/slurm-*.txt | grep -c 'resumed from step')
[ "$resumed" -ge 1 ] || fail "array: no task was preempted"
row "an array of two tasks, preempted" "$resumed"
[ -z "${ORRERY_LONG:-}" ] || { printf '| what | resumed | results |\n|---|---|---|\n'; cat rows.txt; } > "$ORRERY_LONG"
echo "1 passed, 0 failed"
