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
    shift 2
    orrery="ip netns exec $namespace $orrery" run_tiny two $steps --set run.transport=gloo \
        --set transport.gloo.interface=veth-$([ "$rank" = 0 ] && echo a || echo b) \
        --nodes 2 --node-rank "$rank" --rendezvous 10.77.0.1:29877 "$@"
}
mkdir other && other_code device_cpu other
join_host $a 0 > a.log 2>&1 &
first=$!
join_host $b 1 --set 'plugins.path=["other"]' > b.log 2>&1 || { cat a.log b.log; fail "host b"; }
wait $first || { cat a.log b.log; fail "host a"; }
losses two > two.txt
cmp one.txt two.txt || { diff one.txt two.txt | head -4; fail "other losses on two hosts"; }
grep -q 'transport gloo does not authenticate' a.log || { cat a.log; fail "not a word on who may speak to gloo"; }
grep -q "^rank 1 on host .* may compute different bits: $PWD/other/liborrery_device_cpu.so: digest .*, rank 0 has" \
    a.log || { cat a.log; fail "not a word on the other code of host b"; }
echo "two hosts over gloo: $steps steps with the losses of one host, bit for bit"

# Without an interface gloo takes the address by which a host reaches the rendezvous: its own name may stand for a
# loopback address, or for none at all.
cat > with_name.sh <<'SH'
hostname "$1" && shift && exec "$@"
SH
# named FOLDER NAMESPACE RANK NAME [more arguments]: a host of that name.
named() {
    local folder=$1 namespace=$2 rank=$3 name=$4
    shift 4
    orrery="ip netns exec $namespace unshare --uts sh with_name.sh $name $orrery" run_tiny "$folder" $steps \
        --nodes 2 --node-rank "$rank" --rendezvous 10.77.0.1:29878 "$@"
}
for name in localhost no-such-host.invalid; do
    named $name $a 0 $name --set run.transport=gloo > a3.log 2>&1 &
    first=$!
    named $name $b 1 $name --set run.transport=gloo > b3.log 2>&1 || { cat a3.log b3.log; fail "host b, called $name"; }
    wait $first || { cat a3.log b3.log; fail "host a, called $name"; }
    losses $name | cmp - one.txt || fail "other losses where the hosts are called $name"
    ! grep "may compute different bits" a3.log || fail "the hosts called $name have the same code"
    echo "two hosts called $name: the same losses"
done
for wrong in localhost no-such-host.invalid; do
    named refused $a 0 $wrong --set run.transport=gloo --set transport.gloo.host=$wrong > a3.log 2>&1 &
    first=$!
    named refused $b 1 $wrong --set run.transport=gloo > b3.log 2>&1 && fail "transport.gloo.host=$wrong was taken"
    wait $first && { cat a3.log; fail "transport.gloo.host=$wrong was taken"; }
    grep -q "$wrong.*transport.gloo.interface" a3.log || { cat a3.log b3.log; fail "no reason for $wrong"; }
    grep -q "rank 0 (pid .* failed: transport gloo" b3.log || { cat b3.log; fail "host b is not told why host a ends"; }
done

# UCX over TCP listens on the interface that the job uses, and on no other. (Two namespaces of one machine share memory:
# left to itself it takes that.)
if [ -e "$(dirname "$orrery")/plugins/liborrery_transport_ucx.so" ] && command -v ss > /dev/null; then
    ip link add other-a netns $a type veth peer name other-b netns $b || fail "a second veth"
    ip -n $a addr add 10.78.0.1/24 dev other-a && ip -n $a link set other-a up || fail "a second interface of a"
    ip -n $b addr add 10.78.0.2/24 dev other-b && ip -n $b link set other-b up || fail "a second interface of b"
    steps=100000
    ucx=(--set run.transport=ucx --set transport.ucx.transports=tcp --set checkpoint.every_steps=0)
    tiny_exec=exec named ucx $a 0 a "${ucx[@]}" > a4.log 2>&1 &
    first=$!
    tiny_exec=exec named ucx $b 1 b "${ucx[@]}" > b4.log 2>&1 &
    wait_for steps_done ucx 3 || { cat a4.log b4.log; fail "two hosts over ucx"; }
    ip netns exec $a ss -Hltn > listens.txt
    kill -INT $first
    wait
    grep -v -e "10.77.0.1:" listens.txt && { cat listens.txt; fail "ucx listens beyond the interface of the job"; }
    [ "$(grep -c "10.77.0.1:" listens.txt)" -ge 2 ] || { cat listens.txt; fail "the ranks listen nowhere: no test"; }
    echo "two hosts over ucx: all $(wc -l < listens.txt) ports are on the interface of the job"
fi
echo "1 passed, 0 failed"
