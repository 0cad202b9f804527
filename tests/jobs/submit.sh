#!/usr/bin/env bash
# `orrery submit --print` of each engine against its kept text, tests/golden/submit/ENGINE[-MORE].txt, of the
# configuration of that name (ORRERY_BLESS=1 writes it); a job that Slurm's programs, played by scripts, start;
# mistakes that are found before anything is queued.
source "$(dirname "$0")/lib.sh"
patience=9000  # three minutes, for a busy machine
golden=$source_root/tests/golden/submit
cat > common.toml <<'TOML'
[run]
seed = 5
folder = "runs/job"
threads_per_rank = 1
transport = "gloo"
[mesh]
dp = 4
[data]
path = "text.txt"
tokens_per_sequence = 32
validation = 0.1
[train]
sequences_per_step = 4
steps = 12
evaluate_every = 0
[checkpoint]
every_steps = 10
[script]
layers = 2
embed = 48
heads = 3
warmup = 5
TOML
printf 'desk1 slots=2\nanna@desk2  # upstairs\nfd00::3 slots=2\n' > hosts.txt
submit() { $orrery submit "$source_root/scripts/gpt.lua" --config job.toml "$@"; }

engines=$($orrery plugins | sed -n 's|^  engine/\([a-z0-9_]*\) .*|\1|p')
[ -n "$engines" ] || fail "no engine"
for engine in $engines; do
    [ -e "$golden/$engine.toml" ] || fail "$engine: no text is kept, $golden/$engine.toml"
done
for config in "$golden"/*.toml; do
    name=$(basename "$config" .toml)
    cat common.toml "$config" > job.toml
    read -r -a flags <<< "$(sed -n '1s/^# flags://p' "$config")"
    submit --engine "${name%%-*}" --print "${flags[@]}" > said.txt 2> said.err || { cat said.err; fail "$name"; }
    sed -e "s|$work|WORK|g" -e "s|$orrery|ORRERY|g" -e "s|$(readlink -f "$orrery")|ORRERY|g" \
        -e "s|$source_root|SOURCE|g" said.txt > "$name.txt"
    [ -z "${ORRERY_BLESS:-}" ] || cp "$name.txt" "$golden/$name.txt"
    diff -u "$golden/$name.txt" "$name.txt" || fail "$name: another text than the kept one"
    [ ! -e runs ] || fail "$name: --print wrote $(find runs)"
done

# Slurm's programs: sbatch starts a job in the background, of which srun starts all tasks on this host.
mkdir slurm
cat > slurm/sbatch <<'SH'
#!/bin/bash
cat > job.sh
echo "$@" > sbatch.txt
SLURM_JOB_ID=77 SLURM_JOB_PARTITION=batch setsid bash job.sh > job.log 2>&1 < /dev/null &
echo $! > job.pid
echo 77
SH
cat > slurm/srun <<'SH'
#!/bin/bash
for word; do case $word in --ntasks=*) tasks=${word#*=} ;; esac; done
while [[ $1 == --* ]]; do shift; done
for ((rank = 0; rank < tasks; ++rank)); do
    SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_STEP_NUM_TASKS=$tasks SLURM_NODEID=0 \
        SLURM_STEP_TASKS_PER_NODE=$tasks "$@" &
    echo $! >> ranks.pid
done
code=0
for rank in $(cat ranks.pid); do wait $rank; one=$?; [ $one -le $code ] || code=$one; done
rm ranks.pid
[ ! -e srun.code ] || code=$(cat srun.code)
exit $code
SH
cat > slurm/squeue <<'SH'
#!/bin/bash
running=$([ -e job.pid ] && kill -0 "$(cat job.pid)" 2> /dev/null && echo RUNNING)
case "$*" in
*--format=%T*) echo "$running" ;;
*--format=%A*) [ -z "$running" ] || echo 77 ;;
*--steps*) printf '77.batch\n77.0\n' ;;
*) echo JOBID; [ -z "$running" ] || echo "77 $running" ;;
esac
SH
cat > slurm/scontrol <<'SH'
#!/bin/bash
echo "scontrol $*" >> calls.txt
[ "$1" != show ] || echo "   DefaultTime=NONE GraceTime=40 Hidden=NO"
SH
cat > slurm/scancel <<'SH'
#!/bin/bash
echo "scancel $*" >> calls.txt
[[ $* != --signal=USR1* ]] || kill -USR1 $(cat ranks.pid)
SH
cat > slurm/sinfo <<'SH'
#!/bin/bash
printf "batch|batch${sinfo_default-*}|1-00:00:00\n"; printf 'short|short|30:00\nlong|long|infinite\n'
[[ $* != *--all* ]] || echo 'hidden|hidden|40:00'
SH
chmod +x slurm/*
trap '[ ! -e job.pid ] || kill -9 -- "-$(cat job.pid)" 2> /dev/null; rm -rf "$work"' EXIT
export PATH=$work/slurm:$PATH
cat common.toml > job.toml
printf '[submit]\nnodes = 1\n' >> job.toml
mkdir alone && echo '{"engine": "slurm", "name": "76"}' > alone/job.json
trained_in alone "$source_root/scripts/gpt.lua" --config job.toml
! grep -q ended alone/job.json || fail "a run that no engine started has ended the job of its folder"
rm alone/job.json

# A job has ended when its script has, not when that has trained.
{
    cat "$source_root/scripts/gpt.lua"
    echo 'local f = io.open("more/job.json") if f then for line in f:lines() do print("meanwhile " .. line) end end'
} > more.lua
SLURM_JOB_ID=76 trained_in more more.lua --config job.toml --set 'lua.allow=["io"]'
grep -q 'meanwhile .*"name": "76"' more.log || { cat more.log; fail "no job.json of a script that trains"; }
! grep -q 'meanwhile .*ended' more.log || fail "the job has ended while its script runs"
grep -q '"ended": true' more/job.json || { cat more/job.json; fail "the script has ended, and its job has not"; }
ended() { grep -q '"ended": true' runs/job/job.json && ! kill -0 "$(cat job.pid)" 2> /dev/null; }
# A secret in the submitting shell's environment is not the job's.
ORRERY_TOKEN=a-secret-of-this-shell exits 0 first submit --engine slurm
grep -q "^job 77 of slurm$" first.txt || { cat first.txt; fail "the job's name"; }
[ "$(stat -c %a runs/job/token)" = 600 ] || fail "the secret has mode $(stat -c %a runs/job/token)"
wait_for ended || { cat job.log; fail "the job does not end"; }
[ "$(losses runs/job)" = "$(losses alone)" ] || fail "other losses than those of orrery run"
grep -q 'grace_s = 40 ' runs/job/config.toml || fail "GraceTime of the partition is not run.grace_s"
exits 0 state $orrery status runs/job
missing=$(missing_word "job 77 of slurm, submitted|step 12, loss |with exit code 0: done" "$(cat state.txt)")
[ -z "$missing" ] || { cat state.txt; fail "the state lacks $missing"; }

# It goes on in the same folder, where no second job may be; stop lets it save.
exits 0 second submit --engine slurm --set train.steps=1000000
wait_for steps_done runs/job 20 || { cat job.log; fail "it does not resume"; }
exits 0 state $orrery status runs/job
grep -q "^77 RUNNING$" state.txt || { cat state.txt; fail "the state lacks what squeue prints"; }
exits 0 log $orrery logs runs/job --rank 0
grep -q "resumed from step 12" log.txt || { cat log.txt; fail "the log of rank 0"; }
refused "job.toml:3:10|runs/job already has job 77 of slurm|orrery stop" submit --engine slurm
echo "mistake: two submits into one folder"
exits 0 stop $orrery stop runs/job
over() { ! kill -0 "$(cat job.pid)" 2> /dev/null; }
wait_for over || { cat job.log; fail "the job does not stop"; }
grep -q "the checkpoint is committed" job.log || { cat job.log; fail "it did not save"; }
ends="scontrol update JobId=77 Requeue=0\|scancel --state=PENDING 77\|scancel --signal=USR1 77"
[ "$(grep -cx "$ends" calls.txt)" = 3 ] ||
    { cat calls.txt; fail "calls of stop"; }
! grep -q '"ended"' runs/job/job.json || fail "a job that stopped has ended"
exits 0 third submit --engine slurm --fresh
[ -e runs/job.1/config.toml ] || { cat third.txt; fail "--fresh did not move the folder aside"; }
wait_for ended || { cat job.log; fail "the third job does not end"; }
[ "$(losses runs/job)" = "$(losses alone)" ] || fail "--fresh: other losses"
rm job.pid
mkdir -p runs/new && echo '{"engine": "slurm", "name": "76", "ended": true}' > runs/new/job.json
exits 0 fresh submit --engine slurm --fresh --set run.folder=runs/new
grep -q '"name": "77"' runs/new/job.json && [ ! -e runs/new.1 ] || fail "--fresh in a folder where no run has begun"
over() { ! kill -0 "$(cat job.pid)" 2> /dev/null; }
wait_for over || { cat job.log; fail "the job in a new folder does not end"; }
grep -q '"ended": true' runs/new/job.json || { cat job.log; fail "the job in a new folder did not end well"; }
exits 0 now $orrery stop runs/job --now
grep -q "^scancel 77$" calls.txt || { cat calls.txt; fail "calls of stop --now"; }

# srun's exit code is that of any agent, as of a drained one: the job ends as node 0's did, and is not queued again.
echo 75 > srun.code
: > calls.txt
exits 0 agents submit --engine slurm --restarts 1 --set run.folder=runs/agents
over_in() { grep -q '"ended": true' "$1/job.json" && ! kill -0 "$(cat job.pid)" 2> /dev/null; }
wait_for over_in runs/agents || { cat job.log; fail "the job of agents does not end"; }
! grep requeue calls.txt || fail "a job that ended was queued again"
! ls -A runs/agents | grep exit || fail "the file of the exit code is left"
rm srun.code

# A run that no engine started does not end the job that job.json names.
mkdir runs/pending
echo '{"engine": "slurm", "name": "99"}' > runs/pending/job.json
alone() { $orrery run "$source_root/scripts/gpt.lua" --config job.toml --set mesh.dp=1 "$@"; }
exits 0 by_hand alone --set run.folder=runs/pending
! grep ended runs/pending/job.json || fail "another job has ended"

# A pod that is made again after its job has ended exits with 0; the next job of that name trains.
export ORRERY_KUBERNETES=jobset/tiny ORRERY_KUBERNETES_NAMESPACE=team ORRERY_KUBERNETES_JOB=first
exits 0 pod alone --set run.folder=runs/pod
grep -q '"start": "first"' runs/pod/job.json && grep -q '"ended": true' runs/pod/job.json ||
    { cat runs/pod/job.json; fail "a pod's job has not ended"; }
JOB_COMPLETION_INDEX=1 ORRERY_NODES=2 MASTER_ADDR=192.0.2.1 ORRERY_TOKEN=a-secret-of-both-pods exits 0 pod_again \
    alone --set run.folder=runs/pod --restarts 1 --set mesh.dp=2 --set train.steps=20
grep -q "job team/jobset/tiny of kubernetes has ended" pod_again.err || { cat pod_again.err; fail "a pod made again"; }
! steps_done runs/pod 13 || fail "a pod made again has trained"
ORRERY_KUBERNETES_JOB=second exits 0 next_job alone --set run.folder=runs/pod --set train.steps=20
steps_done runs/pod 20 || { cat next_job.err; fail "the next job of a name does not train"; }
unset ORRERY_KUBERNETES ORRERY_KUBERNETES_NAMESPACE ORRERY_KUBERNETES_JOB

# Mistakes, none of which calls sbatch.
rm -f sbatch.txt
refused '--engine: no engine "slrum"|did you mean "slurm"' submit --engine slrum
refused 'submit.slurm.partition=btch: Slurm has no partition "btch"|one of: batch, short, long, hidden' \
    submit --engine slurm --set submit.slurm.partition=btch
echo "mistake: a wrong partition"
sinfo_default='' refused 'no partition is set, and Slurm has no default one|one of: batch, short' submit --engine slurm
echo "mistake: no partition"
refused 'submit.time is 3600 s, but partition hidden ends jobs after 40:00' \
    submit --engine slurm --set submit.slurm.partition=short,hidden,nowhere --set submit.time=1:00:00
refused 'submit.time is 3600 s, but partition short ends jobs after 30:00, 1800 s|lower submit.time' \
    submit --engine slurm --set submit.slurm.partition=short --set submit.time=1:00:00
echo "mistake: a time beyond its partition's limit"
refused 'unknown key "partiton" in [submit.slurm]|did you mean "partition"' \
    submit --engine slurm --set submit.slurm.partiton=batch
refused 'no engine "slrum"|slurm' submit --engine slurm --set submit.slrum.partition=batch
refused 'submit.time = "90m": expected hours, minutes and seconds' submit --engine slurm --set submit.time=90m
refused 'mesh dp=4 has 4 ranks, which submit.nodes = 3 does not divide' submit --engine slurm --set submit.nodes=3
refused 'submit.nodes = 1 and submit.ranks_per_node = 2 are 2 ranks, but mesh dp=4 has 4 ranks' \
    submit --engine slurm --set submit.ranks_per_node=2
refused 'submit.nodes = 1 and run.ranks = 2 are 2 ranks, but mesh dp=4 has 4 ranks' \
    submit --engine slurm --set run.ranks=2
refused 'submit.environment.ORRERY_TOKEN|leave it out' submit --engine slurm --set submit.environment.ORRERY_TOKEN=x
refused '--spares: mpirun ends all tasks|leave --spares out' \
    submit --engine mpi --restarts 1 --spares 1 --set submit.nodes=2
refused '--spares 1|one node|submit.nodes to 2' submit --engine slurm --spares 1
refused 'extra: #SBATCH hetjob|a heterogeneous job' submit --engine slurm --set 'submit.slurm.extra=["#SBATCH hetjob"]'
refused 'data file nowhere.txt|set data.path' submit --engine slurm --set data.path=nowhere.txt
refused 'alone has no job.json|name the folder of a submitted run' $orrery status alone
refused 'typo has no job.json|name the folder of a submitted run' $orrery logs typo -f
refused "engine slurm does not show the output of rank 3|name the run's folder" $orrery logs --engine slurm 77 --rank 3
mkdir none && ln -s "$(command -v sh)" none
refused '--engine slurm: the program sbatch is not in PATH|--print' \
    env PATH="$work/none" "$orrery" submit "$source_root/scripts/gpt.lua" --config job.toml --engine slurm
echo "mistake: sbatch is not installed"
printf '#!/bin/sh\necho "sbatch: error: Unable to contact slurm controller" >&2\nexit 1\n' > slurm/sbatch
chmod +x slurm/sbatch
exits 1 down submit --engine slurm
grep -q "Unable to contact slurm controller" down.err || { cat down.err; fail "what sbatch says is not printed"; }
[ ! -e sbatch.txt ] || fail "a mistake was queued"
echo "submit: ok"
