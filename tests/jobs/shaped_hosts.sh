# Sourced after lib.sh: a namespace a rank, veth pairs to a switch, which shaped_hosts.py shapes by tbf (on lo, tbf
# stalls). Sets switch and hosts. Ends the test as skipped where this cannot be had.
command -v python3 > /dev/null || { echo "skipped: python3, which measures, is not here"; exit 77; }
command -v tc > /dev/null || { echo "skipped: tc, which shapes links, is not here"; exit 77; }
export XDG_CACHE_HOME=$work/cache ORRERY_TOKEN=a-secret-of-all-hosts
switch=orrery-s-$$
hosts=(orrery-0-$$ orrery-1-$$)
remove() { for namespace in $switch "${hosts[@]}"; do ip netns del "$namespace" 2> /dev/null; done; }
trap 'jobs -p | xargs -r kill -9 2>/dev/null; remove; rm -rf "$work"' EXIT
skipped() { echo "skipped: $1 ($(head -1 "$2"))"; exit 77; }
ip netns add $switch 2> netns.log || skipped "cannot make a network namespace here" netns.log
ip -n $switch link add bridge type bridge 2> bridge.log || skipped "this kernel has no bridges" bridge.log
ip -n $switch link set bridge up || fail "the switch"
for i in "${!hosts[@]}"; do
    ip netns add "${hosts[i]}" && ip link add veth-h netns "${hosts[i]}" type veth peer name "veth-$i" netns $switch &&
        ip -n $switch link set "veth-$i" master bridge up &&
        ip -n "${hosts[i]}" addr add 10.79.0.$((i + 1))/24 dev veth-h &&
        ip -n "${hosts[i]}" link set veth-h up && ip -n "${hosts[i]}" link set lo up || fail "host $i"
done
tc -n $switch qdisc replace dev veth-0 root tbf rate 1gbit burst 36kb limit 4mb 2> tbf.log ||
    skipped "this kernel has no tbf" tbf.log
