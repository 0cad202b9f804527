#!/usr/bin/env bash
# The entrypoint of Ray jobs is good Python of up to 80 lines. ORRERY_LONG: three raylets of one host, on which
# `orrery submit --engine ray` starts two agents: the raylet of each is killed once, its ranks come back on another one,
# with the losses of a job that nothing disturbed; `orrery stop` saves. ORRERY_RAY: an environment of Python with Ray,
# else one is made for the test.
if [ -n "${ORRERY_LONG:-}" ] && [ -z "${INSIDE:-}" ]; then
    spaces=(unshare --net --mount --pid --fork --kill-child --mount-proc)
    "${spaces[@]}" true 2> /dev/null || { echo "skipped: cannot make a namespace here"; exit 77; }
    if [ -z "${ORRERY_RAY:-}" ]; then
        ORRERY_RAY=$(mktemp -d)
        trap 'rm -rf "$ORRERY_RAY"' EXIT
        python3 -m venv "$ORRERY_RAY" && "$ORRERY_RAY/bin/pip" install -q --no-cache-dir "ray[default]" ||
            { echo "skipped: Ray cannot be installed"; exit 77; }
    fi
    INSIDE=yes ORRERY_RAY=$ORRERY_RAY "${spaces[@]}" bash "$0"
    exit
fi
source "$(dirname "$0")/lib.sh"
entrypoint=$source_root/scripts/ray/orrery_ray.py
python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$entrypoint" || fail "orrery_ray.py"
[ "$(wc -l < "$entrypoint")" -le 80 ] || fail "orrery_ray.py has more than 80 lines"
[ -n "${ORRERY_LONG:-}" ] || { echo "1 passed, 0 failed"; exit 0; }

export PATH=$ORRERY_RAY/bin:$PATH RAY_USAGE_STATS_ENABLED=0 RAY_raylet_start_wait_time_s=120
ip link set lo up && ip addr add 10.79.0.1/32 dev lo || fail "an address"
mkfifo orders
python3 -B "$source_root/tests/jobs/ray_cluster.py" 10.79.0.1 < orders > cluster.txt 2> cluster.err &
exec 9> orders
patience=60000
cluster=$!
ready() { grep -q ready cluster.txt || ! kill -0 $cluster; }
wait_for ready && grep -q ready cluster.txt || { tail cluster.err; fail "no cluster"; }
url=http://$(awk '/ready/ { print $2 }' cluster.txt)
answers() { ray job list --address "$url" > answers.txt 2>&1; }
patience=30 wait_for answers || { cat answers.txt; fail "the cluster takes no jobs"; }
printf '[submit]\nnodes = 2\n[submit.ray]\naddress = "%s"\nscript = "%s"\n' "$url" "$entrypoint" > job.toml
# ask WHAT NAME: the cluster's answer, among what Ray prints there.
answered() { [ "$(grep -c "^$1 $2 " cluster.txt)" -gt "$3" ]; }
ask() {
    local before
    before=$(grep -c "^$1 $2 " cluster.txt)
    echo "$*" >&9
    wait_for answered "$1" "$2" "$before" || fail "$*"
    grep "^$1 $2 " cluster.txt | tail -n 1 | cut -d ' ' -f 3
}
# tiny COMMAND FOLDER STEPS
tiny() {
    $orrery $1 "$source_root/scripts/gpt.lua" --config job.toml --set run.folder="$2" --set train.steps="$3" \
        --set run.seed=5 --set run.transport=gloo --set run.threads_per_rank=1 --set mesh.dp=2 \
        --set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 \
        --set checkpoint.every_steps=10 --set script.layers=2 --set script.embed=48 --set script.heads=3 \
        > "$2.log" 2>&1 || { cat "$2.log"; fail "$2: orrery $1"; }
}
job() { sed -n 's/.*job \(raysubmit_[A-Za-z0-9]*\) of ray.*/\1/p' "$1.log"; }
logs() { tail "$1/events.jsonl"; ray job logs --address "$url" "$(job "$1")" | tail -n 40; }
starts() { grep -c '"event":"training"' "$1/events.jsonl" 2> /dev/null || true; }
more_starts() { [ "$(starts "$1")" -gt "$2" ]; }
done_in() { grep -q '"event":"end","exit_code":0' "$1/events.jsonl"; }
steps=8000
tiny run one $steps
losses one > one.txt
tiny "submit --engine ray" two $steps
for name in node1 node0; do
    reached=$(grep -c '"loss"' two/metrics.jsonl 2> /dev/null || true)
    wait_for steps_done two $((${reached:-0} + 200)) || { logs two; fail "no steps"; }
    before=$(starts two) lost=$(ask kill $name)
    wait_for more_starts two "$before" || { logs two; fail "no ranks after the raylet of $name was killed"; }
    at=$(ask where $name)
    [ "$at" != "$lost" ] && [ "$at" != nowhere ] || { logs two; fail "$name: on $at, and $lost was killed"; }
    done_in two && fail "the job was too short for this test"
    said+="$name: its raylet was killed, it runs on another one, and the ranks resumed"$'\n'
    ask add raylet > added.txt
done
wait_for done_in two || { logs two; fail "no end"; }
losses two | cmp - one.txt || fail "other losses"
said+="two agents on three raylets: $steps steps with the losses of one host, bit for bit"$'\n'

tiny "submit --engine ray" three 1000000
wait_for steps_done three 20 || { logs three; fail "no steps"; }
exits 0 status $orrery status --engine ray --config job.toml "$(job three)"
cat status.txt status.err | grep -q RUNNING || { cat status.txt status.err; fail "status"; }
stopped() {
    exits 0 stop $orrery stop --engine ray --config job.toml "$(job "$1")"
    ended() { grep -q '"event":"end","exit_code":130,"why":"stopped by signal 2 on node 0' "$1/events.jsonl"; }
    wait_for ended "$1" || { cat stop.txt; logs "$1"; fail "stop"; }
}
stopped three
said+="orrery stop: all ranks save and end"$'\n'

tiny "submit --engine ray --restarts 3 --wait-node 300" four 1000000
wait_for steps_done four 20 || { logs four; fail "no steps"; }
kill -TERM "$(pgrep -of 'run.folder=four .*--node-rank 1')" || fail "no agent of node 1"
wait_for grep -q '"event":"drained","node":1' four/events.jsonl || { logs four; fail "node 1 does not leave"; }
stopped four
said+="node 1 drained: orrery stop ends the job that waits for it"
echo "$said" | tee "$ORRERY_LONG"
