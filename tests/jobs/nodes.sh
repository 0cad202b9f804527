#!/usr/bin/env bash
# Several nodes (network namespaces) with `--restarts`: a lost node, started again or replaced by a spare, does not end
# the job; with neither it ends with 75, and says which one is missing. Losses are those of one host.
source "$(dirname "$0")/lib.sh"
spaces=()
for n in 0 1 2; do spaces+=("orrery-n$n-$$"); done
if ! ip netns add "${spaces[0]}" 2> netns.log; then
    echo "skipped: cannot make a network namespace here ($(head -1 netns.log))"
    exit 77
fi
bridge=orrery-br-$$
clean() {
    jobs -p | xargs -r kill -9 2> /dev/null
    for n in 0 1 2; do ip netns pids "${spaces[$n]}" 2> /dev/null | xargs -r kill -9; done
    for n in 0 1 2; do ip netns del "${spaces[$n]}" 2> /dev/null; done
    rm -rf "$work"
}
trap clean EXIT
ip netns add "${spaces[1]}" && ip netns add "${spaces[2]}" || fail "namespaces"
# Node 0's namespace has the bridge.
ip -n "${spaces[0]}" link add $bridge type bridge 2> bridge.log ||
    { echo "skipped: no bridge ($(cat bridge.log))"; exit 77; }
ip -n "${spaces[0]}" addr add 10.77.1.1/24 dev $bridge
ip -n "${spaces[0]}" link set $bridge up
ip -n "${spaces[0]}" link set lo up
for n in 1 2; do
    ip link add veth0 netns "${spaces[$n]}" type veth peer name veth$n netns "${spaces[0]}" || fail "veth $n"
    ip -n "${spaces[0]}" link set veth$n master $bridge up
    ip -n "${spaces[$n]}" addr add 10.77.1.$((n + 1))/24 dev veth0
    ip -n "${spaces[$n]}" link set veth0 up
    ip -n "${spaces[$n]}" link set lo up
    # A step's gradients take 5 ms then, on any machine: nothing that is to happen to a run comes after its end.
    ip netns exec "${spaces[$n]}" tc qdisc add dev veth0 root tbf rate 400mbit burst 64kb latency 1s 2> tbf.log ||
        echo "links are not shaped: $(head -1 tbf.log)"
done
export ORRERY_TOKEN=a-secret-of-all-nodes
steps=400
pace="--set run.threads_per_rank=1 --set train.evaluate_every=0 --set checkpoint.every_steps=50"
run_tiny one $steps $pace > one.log 2>&1 || { cat one.log; fail "two ranks of one host"; }
losses one > one.txt
declare -A node
# begin FOLDER N [arguments]: the launcher of node N, in the background; node[N] is its process.
begin() {
    local folder=$1 n=$2
    shift 2
    orrery="ip netns exec ${spaces[$n]} $orrery" tiny_exec=exec run_tiny "$folder" $steps $pace --restarts 5 \
        --set run.transport=gloo --nodes ${nodes:-2} --node-rank "$n" --rendezvous 10.77.1.1:29871 "$@" \
        >> "$folder.$n.log" 2>&1 &
    node[$n]=$!
}
logs() { tail -n 40 "$1".?.log; }
# Slowly enough for what happens in between.
wait_steps() { wait_for steps_done "$1" "$2" || { logs "$1"; fail "$1: no steps"; }; }
ends() {
    local folder=$1 n=$2 code
    wait ${node[$n]}
    code=$?
    [ $code -eq "$3" ] || { logs "$folder"; fail "$folder: node $n ended with $code, expected $3"; }
}
same() {
    losses "$1" > "$1.txt"
    cmp one.txt "$1.txt" || { diff one.txt "$1.txt" | head -4; logs "$1"; fail "$1: other losses"; }
}
says() { grep -qE -- "$2" "$1" || { cat "$1"; fail "$1 does not say \"$2\""; }; }
# The launcher and its ranks.
kill_node() { kill -9 ${node[$1]} $(ranks_of ${node[$1]}) 2> /dev/null; wait ${node[$1]} 2> /dev/null; }
# What is committed is not lost. Beside the steps a save is under way when the next one is due, at worst.
lost_at_most() {
    grep -ho 'checkpoint of step [0-9]* committed' "$1".?.log | cut -d' ' -f4 > committed.txt
    python3 - "$1" <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/events.jsonl")]
ended = [e for e in events if e["event"] == "ended"]
again = [e for e in events if e["event"] == "training"][1:]
before = lambda a: max(e["step"] for e in ended if e["generation"] < a["generation"])
committed = [int(step) for step in open("committed.txt")]
newest = lambda a: max((step for step in committed if step <= before(a)), default=0)
assert again and all(a["step"] >= newest(a) and before(a) - a["step"] <= 101 for a in again), (committed, events)
PY
}

begin again 0
begin again 1
wait_steps again 120
kill_node 1
begin again 1
ends again 0 0
ends again 1 0
same again
says again.0.log "node 1 is lost"
lost_at_most again || { logs again; fail "again: more is lost than a save under way"; }
python3 -c "
import json
e = [json.loads(l) for l in open('again/events.jsonl')]
assert any(x['event'] == 'check' and x['node'] == 1 and x['problem'] == '' for x in e), e
assert e[-1]['event'] == 'end' and e[-1]['exit_code'] == 0 and e[-1]['restarts'] == 1, e" || fail "again: events"
echo "again: $(grep goodput again.0.log)"

begin spare 0 --spares 1
begin spare 2 --spares 1
wait_for grep -qs '"node":2,"is":"here"' spare/events.jsonl || { logs spare; fail "spare: node 2 did not come"; }
begin spare 1 --spares 1
wait_steps spare 5
kill_node 1
ends spare 0 0
ends spare 2 0
same spare
says spare.0.log "goodput .* 1 restart$"
echo "spare: $(grep goodput spare.0.log)"

# A node that lost what ranks need is checked twice before it may come back, and left out; a spare takes its place.
mkdir broken && cp "$(dirname "$orrery")"/{orrery,liborrery.so} broken && cp -r "$(dirname "$orrery")/plugins" broken ||
    fail "broken: no copy of the program"
library="--set lua.library=$source_root/scripts"
begin broken-node 0 --spares 1 $library
LD_LIBRARY_PATH=$work/broken orrery=$work/broken/orrery begin broken-node 1 --spares 1 $library
wait_steps broken-node 5
begin broken-node 2 --spares 1 $library
wait_for grep -qs '"node":2,"is":"here"' broken-node/events.jsonl || { logs broken-node; fail "broken: no spare"; }
rm broken/plugins/liborrery_device_cpu.so
kill -9 $(ranks_of ${node[1]})
ends broken-node 0 0
ends broken-node 2 0
wait ${node[1]}
same broken-node
says broken-node.0.log "node 1 failed its check and is looked at once more: .*cpu"
says broken-node.0.log "node 1 failed its checks twice and is left out: .*cpu"
says broken-node.0.log "goodput .* 1 restart$"

# Without a spare nothing can take its place, and what is wrong there is a mistake: exit code 2 on both nodes.
cp "$(dirname "$orrery")"/plugins/liborrery_device_cpu.so broken/plugins
begin broken-alone 0 $library
LD_LIBRARY_PATH=$work/broken orrery=$work/broken/orrery begin broken-alone 1 $library
wait_steps broken-alone 5
rm broken/plugins/liborrery_device_cpu.so
kill -9 $(ranks_of ${node[1]})
ends broken-alone 0 2
ends broken-alone 1 2
for n in 0 1; do says broken-alone.$n.log "the job ends: node 1 failed its checks twice .*cpu"; done

# Three nodes: of the two that stay, one's ranks are another launcher's.
threes="--set mesh.dp=3 --set train.sequences_per_step=6"
run_tiny one3 $steps $pace $threes --set run.transport=gloo > one3.log 2>&1 ||
    { cat one3.log; fail "three ranks of one host"; }
for n in 0 1 2; do nodes=3 begin three $n $threes; done
wait_steps three 60
kill_node 2
nodes=3 begin three 2 $threes
for n in 0 1 2; do ends three $n 0; done
losses one3 > one3.txt
losses three | cmp - one3.txt || { logs three; fail "three: other losses"; }
says three.0.log "goodput .* 1 restart$"
echo "three: $(grep goodput three.0.log)"

# A rank of another node than the supervisor's.
begin rank 0
begin rank 1
wait_steps rank 120
kill -9 $(ranks_of ${node[1]})
ends rank 0 0
ends rank 1 0
same rank
python3 -c "
import json
e = [json.loads(l) for l in open('rank/events.jsonl')]
of_1 = [x for x in e if x['event'] == 'ended' and x['node'] == 1]
assert any(x['cause'] == 'process' and x['who'] == 'rank 1' for x in of_1), e" ||
    { logs rank; fail "rank: events"; }

# The network of a node, for longer than silence is borne.
begin link 0 --set run.silence_s=3
begin link 1 --set run.silence_s=3
wait_steps link 60
ip -n "${spaces[0]}" link set veth1 down
wait_for grep -q "node 1 is lost" link.0.log || { logs link; fail "link: node 1 was not missed"; }
ip -n "${spaces[0]}" link set veth1 up
ends link 0 0
ends link 1 0
same link
echo "link: $(grep goodput link.0.log)"

begin missing 0 --wait-node 4
begin missing 1 --wait-node 4
wait_steps missing 60
kill_node 1
ends missing 0 75
says missing.0.log "the job ends: node 1 is missing .* after 4 s"

begin first 0 --wait-node 60
begin first 1 --wait-node 60
wait_steps first 60
kill_node 0
sleep 1
begin first 0 --wait-node 60
ends first 0 0
ends first 1 0
same first
begin gone 0 --wait-node 3
begin gone 1 --wait-node 3
wait_steps gone 60
kill_node 0
ends gone 1 75
says gone.1.log "node 0 is missing: its launcher did not answer for 3 s"

# Another setting on one node is a mistake, not a rank that does not answer: no restart.
begin other 0
begin other 1 --set checkpoint.async=false
ends other 0 2
ends other 1 2
says other.0.log "checkpoint.async: false, rank 0 has true"
says other.0.log "the job ends: rank [01] failed: rank 1 on host .* would not do the same"
says other.0.log "; 0 restarts$"

# What node 0's launcher itself fails of ends the others with it, long before --wait-node.
begin taken 0
begin taken 1
wait_steps taken 60
touch taken/checkpoints/generation-00000002
kill -9 $(ranks_of ${node[1]})
SECONDS=0
ends taken 0 1
ends taken 1 1
[ $SECONDS -lt 40 ] || { logs taken; fail "taken: $SECONDS s"; }
says taken.1.log "the job ends: .*generation 2 of the job's folder is taken"

begin stopped 0
begin stopped 1
wait_steps stopped 60
kill -TERM ${node[1]}
ends stopped 0 75
ends stopped 1 75

refused "--spares 1|one node|--nodes of 2 or more" run_tiny bad 5 --spares 1 --restarts 2
refused "--spares 1|no --restarts" run_tiny bad 5 --spares 1 --nodes 2 --node-rank 0 --rendezvous 10.77.1.1:29871
refused "--node-rank 3 of --nodes 2 and --spares 1: expected 0 to 2" run_tiny bad 5 --spares 1 --restarts 2 --nodes 2 \
    --node-rank 3 --rendezvous 10.77.1.1:29871
refused "--wait-node|0: expected a number from 1" run_tiny bad 5 --restarts 2 --wait-node 0
refused "--wait-node requires --restarts" run_tiny bad 5 --wait-node 10
echo "1 passed, 0 failed"
