#!/usr/bin/env bash
# Two "hosts" (network namespaces joined by veth) train over gloo with the losses of two ranks on one host, bit for bit.
source "$(dirname "$0")/lib.sh"
a=orrery-a-$$ b=orrery-b-$$
if ! ip netns add $a 2> netns.log; then
    echo "skipped: cannot make a network namespace here ($(head -1 netns.log))"
    exit 77
fi
trap 'jobs -p | xargs -r kill -9 2>/dev/null; ip netns del $a; ip netns del $b 2>/dev/null; rm -rf "$work"' EXIT
ip netns add $b || fail "second namespace"
ip link add veth-a netns $a type veth peer name veth-b netns $b || fail "veth"
ip -n $a addr add 10.77.0.1/24 dev veth-a || fail "address of a"
ip -n $a link set veth-a up && ip -n $a link set lo up || fail "links of a"
ip -n $b addr add 10.77.0.2/24 dev veth-b || fail "address of b"
ip -n $b link set veth-b up && ip -n $b link set lo up || fail "links of b"

steps=20
run_tiny one $steps > one.log 2>&1 || { cat one.log; fail "two ranks of one host"; }
losses one > one.txt
export ORRERY_TOKEN=a-secret-of-both-hosts
# Both hosts see the same folder, as checkpoints of several machines need.
join_host() {
    local namespace=$1 rank=$2
    orrery="ip netns exec $namespace $orrery" run_tiny two $steps --set run.transport=gloo \
        --set transport.gloo.interface=veth-$([ "$rank" = 0 ] && echo a || echo b) \
        --nodes 2 --node-rank "$rank" --rendezvous 10.77.0.1:29877
}
join_host $a 0 > a.log 2>&1 &
first=$!
join_host $b 1 > b.log 2>&1 || { cat a.log b.log; fail "host b"; }
wait $first || { cat a.log b.log; fail "host a"; }
losses two > two.txt
cmp one.txt two.txt || { diff one.txt two.txt | head -4; fail "other losses on two hosts"; }
echo "two hosts over gloo: $steps steps with the losses of one host, bit for bit"

# Without an interface gloo takes the host's name, which must not stand for a loopback address.
cat > as_localhost.sh <<'SH'
hostname localhost && exec "$@"
SH
join_nameless() {
    orrery="ip netns exec $1 unshare --uts sh as_localhost.sh $orrery" run_tiny three $steps --set run.transport=gloo \
        --nodes 2 --node-rank "$2" --rendezvous 10.77.0.1:29878
}
join_nameless $a 0 > a3.log 2>&1 &
first=$!
join_nameless $b 1 > b3.log 2>&1 && { cat b3.log; fail "host b is called localhost and was reached"; }
wait $first && { cat a3.log; fail "host a is called localhost and was reached"; }
grep -q "is a loopback address here.*transport.gloo.interface" a3.log b3.log || { cat a3.log b3.log; fail "no reason"; }
echo "1 passed, 0 failed"
