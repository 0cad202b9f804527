#!/usr/bin/env bash
# Starts that cannot join a job of two launchers, while it trains: the same node once more, with a mistake, with other
# settings, of another shape, of another job, with another token; and bytes that are no hello. Each ends by itself and
# says why; the job trains on to exit code 0, with the losses of one host. Nine starts with --restarts and nine without;
# the long form has 40, one after the other, and a table.
source "$(dirname "$0")/lib.sh"
address=$(hostname -I 2> /dev/null | tr ' ' '\n' | grep -m1 -v : || true)
[ -n "$address" ] || { echo "skipped: this host has no address but its loopback"; exit 77; }
export ORRERY_TOKEN=a-secret-of-both-hosts
cp "$source_root/scripts/gpt.lua" another.lua
# Of all runs here.
same="--set run.seed=5 --set run.threads_per_rank=1 --set mesh.dp=2 --set data.path=text.txt --set script.layers=2
    --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.evaluate_every=0
    --set checkpoint.every_steps=200 --set script.embed=96 --set script.heads=3 --set script.warmup=5"
kinds=${kinds:-"twice twice_0 typing data settings shape job token restarts"}

# a_start SCRIPT FOLDER NODE [arguments]: becomes a launcher of the job at $port.
a_start() {
    local script=$1 folder=$2 node=$3
    shift 3
    exec "$orrery" run "$script" $same --set run.folder="$folder" --set run.transport=gloo --set train.steps=$steps \
        --nodes ${nodes:-2} --node-rank "$node" --rendezvous "$address:$port" "$@"
}
# What is wrong with a start; $restarts are the job's flags.
twice() { a_start "$source_root/scripts/gpt.lua" "$job" 1 $restarts; }
twice_0() { a_start "$source_root/scripts/gpt.lua" "$job" 0 $restarts; }
typing() { a_start "$source_root/scripts/gpt.lua" "$job" 1 $restarts --set trian.steps=3; }
data() { a_start "$source_root/scripts/gpt.lua" "$job" 1 $restarts --set data.path=nowhere.txt; }
settings() { a_start "$source_root/scripts/gpt.lua" "$job" 1 $restarts --set script.lr=0.02; }
shape() { nodes=3 a_start "$source_root/scripts/gpt.lua" "$job" 1 $restarts --set mesh.dp=3 \
    --set train.sequences_per_step=6; }
job() { a_start another.lua other_job 1 $restarts; }
token() { ORRERY_TOKEN=another-secret-here a_start "$source_root/scripts/gpt.lua" "$job" 1 $restarts; }
restarts() { a_start "$source_root/scripts/gpt.lua" "$job" 1 $([ -n "$restarts" ] || echo --restarts 2); }
taken="another process already is the launcher of node 1: process"
# Of a start, its exit code, and what it says.
expected() {
    case $1 in
        twice | settings) echo "$taken" ;;
        twice_0) echo "in use by another" ;;
        typing) echo "trian" ;;
        data) echo "nowhere.txt" ;;
        shape) echo "give every host the same --nodes and" ;;
        restarts) echo "start all nodes in the same way" ;;
        *) echo "is another job using that port" ;;
    esac
}

# one KIND: runs that start to its end; a line of the table: kind, exit code, seconds, what it said; or "wrong".
one() {
    local kind=$1 begin=$EPOCHREALTIME code said took
    ( $kind ) > "$job.$kind.txt" 2>&1 &
    echo $! > "$job.$kind.pid"
    wait $!
    code=$?
    took=$(echo "$EPOCHREALTIME $begin" | awk '{ printf "%.1f", $1 - $2 }')
    said=$(grep -o "$(expected "$kind").*" "$job.$kind.txt" | head -1 | cut -c1-100)
    [ $code -eq 2 ] && [ -n "$said" ] || said="wrong: $(tail -n 3 "$job.$kind.txt" | tr '\n' ' ')"
    printf '%-9s %-8s %4s %6s  %s\n' "$kind" "${restarts:+with}" "$code" "$took" "$said" >> "$job.table"
}
# Connections that say nothing, too little, too much.
garbage() {
    local i
    for i in 1 2 3 4; do
        (exec 3<> "/dev/tcp/$address/$port" && head -c $((i * i * 100 - 100)) /dev/urandom >&3) 2> /dev/null
    done
}

# all_end PID...: those starts end while the job trains; false where that ends before, and one may have begun it again.
all_end() {
    local start
    for start in "$@"; do
        while kill -0 "$start" 2> /dev/null; do
            sleep 0.05
            kill -0 $zero $first 2> /dev/null && continue
            cat "$job".*.pid | xargs -r kill -9 2> /dev/null
            wait "$@"
            return 1
        done
    done
    kill -0 $zero $first 2> /dev/null
}
# alongside ROUNDS: a job, and that often all kinds of starts while it trains. False where it has ended before they had.
alongside() {
    local rounds=$1 zero first code0 code1 kind in_time=0 waits=()
    port=$(free_port)
    rm -rf "$job" "$job".*
    (a_start "$source_root/scripts/gpt.lua" "$job" 0 $restarts) > "$job.0.log" 2>&1 &
    zero=$!
    (a_start "$source_root/scripts/gpt.lua" "$job" 1 $restarts) > "$job.1.log" 2>&1 &
    first=$!
    wait_for steps_done "$job" 3 || { cat "$job".?.log; fail "$job: no steps"; }
    while [ $((rounds--)) -gt 0 ]; do
        garbage
        for kind in $kinds; do
            one "$kind" &
            waits+=($!)
            [ -z "${ORRERY_LONG:-}" ] || all_end $! || in_time=1
        done
        all_end "${waits[@]}" || in_time=1
    done
    wait $zero
    code0=$?
    wait $first
    code1=$?
    [ "$code0 $code1" = "0 0" ] || { cat "$job".?.log "$job.table"; fail "$job: the job ended with $code0 and $code1"; }
    [ $in_time -eq 0 ] || return 1
    losses "$job" > "$job.losses"
    cmp "one$steps.losses" "$job.losses" || { tail -n 5 "$job".?.log; fail "$job: other losses"; }
}

rounds=1
[ -z "${ORRERY_LONG:-}" ] || { rounds=2 kinds="$kinds twice"; }
steps=${steps:-1200}
for restarts in "" "--restarts 2"; do
    job=job${restarts:+_restarts}
    while :; do
        [ -f one$steps.losses ] || {
            "$orrery" run "$source_root/scripts/gpt.lua" $same --set run.folder=one$steps --set train.steps=$steps \
                > one.log 2>&1 || { cat one.log; fail "two ranks of one host"; }
            losses one$steps > one$steps.losses
        }
        alongside $rounds && break
        steps=$((steps * 3))  # this machine is faster than that
    done
    grep -q wrong "$job.table" && { cat "$job.table"; fail "$job: a start ended otherwise"; }
    grep -qE "failed|lost|died" "$job".[01].log && { cat "$job".[01].log; fail "$job: heard of another start"; }
done
table() {
    printf '%-9s %-8s %4s %6s  %s\n' start restarts code s said
    cat job.table job_restarts.table
    echo "$(cat job.table job_restarts.table | wc -l) starts while two jobs of two nodes train, and $((8 * rounds))" \
        "connections that send nothing or noise: both jobs exit with 0, with the $steps losses of one host"
}
table
[ -z "${ORRERY_LONG:-}" ] || table | sed -e "s/$address/ADDRESS/g" -e "s/host $(hostname)/host HOST/" > "$ORRERY_LONG"
echo "1 passed, 0 failed"
