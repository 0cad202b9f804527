#!/usr/bin/env bash
# Jobs of Slurm on a cluster of four nodes (slurm_cluster.sh): tasks that are ranks, and tasks that are their nodes'
# agents. Each job is disturbed, resumes by itself, and ends with the losses of a run that was not, bit for bit.
# With arguments only these: slurm.sh link limit
source "$(dirname "$0")/../jobs/lib.sh"
cluster=$source_root/tests/engines/slurm_cluster.sh
RATE=16mbit bash "$cluster" start "$work" 4 || { code=$?; [ $code -eq 77 ] && echo "skipped: slurm"; exit $code; }
trap 'bash "$cluster" stop "$work"; jobs -p | xargs -r kill -9 2>/dev/null; rm -rf "$work"' EXIT
[ -z "${ORRERY_LONG:-}" ] || table=$ORRERY_LONG
: > rows.txt
patience=30000

# ctl COMMAND...: as a user of the cluster, with a limit since nothing here may hang.
ctl() { timeout "${limit:-60}" bash "$cluster" on "$work" ctl "$@"; }
(umask 077; echo a-secret-of-this-cluster > token)
steps=200
tiny() {
    echo "$orrery" run "$source_root/scripts/gpt.lua" --set run.folder="$work/$1" --set run.seed=5 --set mesh.dp="$2" \
        --set data.path="$work/text.txt" --set data.tokens_per_sequence=32 --set data.validation=0.1 \
        --set train.sequences_per_step=4 --set train.steps="$3" --set train.evaluate_every=20 \
        --set train.evaluate_batches=2 --set checkpoint.every_steps=10 --set script.layers=2 --set script.embed=48 \
        --set script.heads=3 --set script.warmup=5 --set run.threads_per_rank=1 --set run.timeout_s=60
}
# What a run has come to, without its times: every loss and every evaluation.
results() {
    losses "$1"
    grep eval_loss "$1/metrics.jsonl" | sed -E 's/.*"step":([0-9]+),.*"eval_loss":([^,}]+).*/\1 eval \2/'
}
# submit NAME NODES TASKS SBATCH SRUN FLAGS...: a batch script of NODES nodes, TASKS tasks on each. $job: its number.
submit() {
    local name=$1 nodes=$2 tasks=$3 sbatch=$4 srun=$5
    shift 5
    cat > "$name.sh" << SH
#!/bin/bash
trap : TERM USR1
export ORRERY_TOKEN_FILE=$work/token
srun --nodes=$nodes --ntasks=$((nodes * tasks)) --ntasks-per-node=$tasks $srun --kill-on-bad-exit=0 --wait=0 \
    $(tiny "$name" 4 "$steps") --set run.transport=gloo $*
code=\$?
# 138: SIGUSR1 came before a task could take it.
[ \$code -ne 75 ] && [ \$code -ne 138 ] || scontrol requeue "\$SLURM_JOB_ID"
exit \$code
SH
    # shellcheck disable=SC2086
    job=$(ctl sbatch --parsable --nodes="$nodes" --ntasks-per-node="$tasks" --requeue --open-mode=append \
        --output="$work/$name.log" --job-name="$name" $sbatch "$work/$name.sh") || fail "$name: sbatch"
}
field() { ctl scontrol show job "$job" | tr ' ' '\n' | sed -n "s/^$1=//p" | head -1; }
# ended: whether $job is over, and stays so: a requeued job is over for a moment. One that waits for its next turn gets
# it now, unless `by_itself` is set.
ended() {
    local state final
    state=$(field JobState)
    final=' COMPLETED FAILED CANCELLED TIMEOUT NODE_FAIL OUT_OF_MEMORY BOOT_FAIL DEADLINE '
    case $final in *" $state "*)
        sleep 3
        state=$(field JobState) ;;
    esac
    [ "$state" != PENDING ] || {
        # The limit is tested once: a busy machine could reach the next one before a step is done.
        [ -z "${limited:-}" ] || ! steps_done "$limited" 1 || ctl scontrol update JobId="$job" TimeLimit=UNLIMITED
        [ -n "${by_itself:-}" ] || [ "$(field Reason)" != BeginTime ] ||
            ctl scontrol update JobId="$job" StartTime=now
    }
    case $final in *" $state "*) ;; *) return 1 ;; esac  # not final, such as SIGNALING
}
# over NAME: waits for the end of $job, which must be a good one.
over() {
    local begin=$SECONDS
    while ! ended; do
        [ $((SECONDS - begin)) -lt 3000 ] || { tail -20 "$1.log"; ctl squeue; fail "$1: not over after 3000 s"; }
        sleep 1
    done
    [ "$(field JobState)" = COMPLETED ] ||
        { tail -30 "$1.log"; ctl scontrol show job "$job"; fail "$1: not completed"; }
}
# undisturbed KIND: makes the results of a job of that kind which nothing disturbs, once for each number of steps.
undisturbed() {
    local name=plain-$1-$steps
    [ -e "$name.txt" ] && return
    job_of "$1" "$name" ""
    over "$name"
    results "$name" > "$name.txt"
}
# finishes KIND NAME RESTARTS WHAT: it ends well, after at least so many turns, with the results of one undisturbed.
finishes() {
    local kind=$1 name=$2 least=$3 what=$4 begin=$SECONDS turns seconds
    over "$name"
    turns=$(field Restarts)
    [ "$turns" -ge "$least" ] ||
        { tail -20 "$name.log"; fail "$name: $turns restarts by Slurm, expected $least or more"; }
    seconds=$((SECONDS - begin))
    undisturbed "$kind"
    results "$name" | cmp - "plain-$kind-$steps.txt" ||
        { tail -20 "$name.log"; fail "$name: other results than of an undisturbed job"; }
    echo "| $what | $kind | $turns | $seconds s | the same bits |" | tee -a rows.txt
}
trains() { wait_for steps_done "$1" "${2:-15}" || { tail "$1.log"; ctl squeue; fail "$1: does not train"; }; }
all_idle() { [ "$(ctl sinfo -h -N -p low -t idle -o %N | wc -l)" -eq 4 ]; }

# disturbed KIND WHAT: the job NAME trains meanwhile.
disturb() {
    case $1 in
    requeue) ctl scontrol requeue "$job" ;;
    preempt) ctl sbatch --parsable -p high -N4 --exclusive --output=/dev/null --wrap 'sleep 3' > /dev/null ;;
    slurmd) kill -9 "$(cat cluster/slurmd-n2.pid)" ;;
    link) bash "$cluster" link "$work" n2 down ;;
    esac
}
repair() {
    case $1 in
    slurmd) bash "$cluster" slurmd "$work" n2 ;;
    link) bash "$cluster" link "$work" n2 up ;;
    esac
    wait_for all_idle || { ctl sinfo; fail "a node does not come back"; }
}

# job_of KIND NAME SBATCH: tasks that are ranks, two on each of two nodes; or one task on each of three, of which two
# are agents that start two ranks each, and the third is a spare.
job_of() {
    case $1 in
    ranks) submit "$2" 2 2 "$3" "" ;;
    agents) submit "$2" 3 1 "--no-kill $3" --no-kill --nodes 2 --restarts 5 --wait-node 60 ;;
    esac
}
# disturbed KIND HOW RESTARTS WHAT
disturbed() {
    job_of "$1" "$1-$2" ""
    trains "$1-$2"
    disturb "$2"
    finishes "$1" "$1-$2" "$3" "$4"
    repair "$2"
}
limit() {
    steps=1000 limited=$1-limit
    job_of "$1" "$1-limit" "--time=3 --signal=USR1@120"  # it comes after 30 to 60 s
    finishes "$1" "$1-limit" 1 "USR1 before the limit"
    steps=200 limited=
}
by_itself() {
    by_itself=yes
    job_of ranks by_itself ""
    trains by_itself
    ctl scancel --signal=USR1 "$job"
    finishes ranks by_itself 1 "USR1; Slurm's 120 s until a requeued job starts are waited for"
    unset by_itself
}
# One task, and the mesh has two ranks: they start there.
interactive() {
    local kind
    $(tiny plain-2 2 20) > plain.log 2>&1 || { tail plain.log; fail "two ranks"; }
    results plain-2 > plain-2.txt
    for kind in pty salloc; do
        local command="srun --nodes=1 --ntasks=1 --pty $(tiny $kind 2 20)"
        [ $kind = pty ] || command="salloc --nodes=1"
        printf '%s\nexit\n' "$(tiny $kind 2 20)" |
            limit=120 ctl script -qec "$command" /dev/null > $kind.log 2>&1 || { cat $kind.log; fail "$kind"; }
        grep -q "slurm started one task, and mesh dp=2 has 2 ranks: they start on this host" $kind.log ||
            { cat $kind.log; fail "$kind: no note"; }
        results $kind | cmp - plain-2.txt || fail "$kind: other results"
        echo "| one task starts two ranks: $kind | | 0 | | the same bits |" | tee -a rows.txt
    done
}
refusals() {
    ctl salloc --quiet --nodes=1 : --nodes=1 srun --quiet --het-group=0,1 $(tiny het 2 20) > het.log 2>&1
    grep -q "SLURM_HET_SIZE=2" het.log || { cat het.log; fail "a heterogeneous job"; }
    ctl srun --quiet --nodes=1 --ntasks=2 $(tiny wrong 4 20) > wrong.log 2>&1
    grep -q "mesh dp=4 has 4 ranks, but slurm started 2" wrong.log ||
        { cat wrong.log; fail "two tasks for four ranks"; }
    ctl srun --quiet --nodes=1 --ntasks=2 $(tiny wrong 2 20) --restarts 3 > wrong.log 2>&1
    grep -q -e "--restarts 3: slurm started 2 tasks, 2 of them on this host" wrong.log ||
        { cat wrong.log; fail "--restarts"; }
    echo "refused: a heterogeneous job, two tasks for four ranks, --restarts of two tasks on a node"
}

for part in "${@:-refusals interactive requeue preempt slurmd link limit by_itself}"; do
    for one in $part; do
        case $one in
        requeue) disturbed ranks requeue 1 "scontrol requeue"; disturbed agents requeue 1 "scontrol requeue" ;;
        preempt)
            disturbed ranks preempt 1 "preempted by a higher partition"
            disturbed agents preempt 1 "preempted by a higher partition" ;;
        slurmd) disturbed ranks slurmd 1 "a slurmd killed"; disturbed agents slurmd 0 "a slurmd killed" ;;
        link) disturbed ranks link 1 "a node's link down"; disturbed agents link 0 "a node's link down" ;;
        limit) limit ranks; limit agents ;;
        *) $one ;;
        esac
    done
done
if [ -n "${table:-}" ]; then
    {
        echo "| what | tasks are | restarts by Slurm | from there to its end | results |"
        echo "|---|---|---|---|---|"
        cat rows.txt
    } > "$table"
fi
echo "1 passed, 0 failed"
