#!/usr/bin/env bash
# Runs whose ranks are joined by slow links against `orrery simulate --link-gbit`: a namespace a rank, veth pairs to a
# switch, each direction shaped by tbf (on lo, tbf stalls). Here one run of few steps, which judges nothing by time: all
# of it works. ORRERY_LONG: gloo and ucx at 1 Gbit/s and 100 Mbit/s, a table and bars; it needs the machine to itself
# for ten minutes. SHAPED_LINKS_TABLE: a table of costs that is there, instead of calibrating.
source "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || { echo "skipped: python3, which measures, is not here"; exit 77; }
command -v tc > /dev/null || { echo "skipped: tc, which shapes links, is not here"; exit 77; }
long=${ORRERY_LONG:-}
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

python3 -B "$source_root/tests/jobs/shaped_links.py" "$orrery" "$source_root" "$long" $switch "${hosts[@]}" \
    2> progress.txt || { tail -n 5 progress.txt; fail "shaped links"; }
echo "1 passed, 0 failed"
