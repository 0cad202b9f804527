#!/usr/bin/env bash
# run.ports: two hosts (network namespaces) whose firewalls (nft) have 20 ports open train with the losses of one host;
# with one port open, or a range that is too small or in use, the message says which ports are needed.
source "$(dirname "$0")/lib.sh"
a=orrery-pa-$$ b=orrery-pb-$$
skipped() { echo "skipped: $1"; exit 77; }
command -v nft > /dev/null || skipped "nft is not installed"
ip netns add $a 2> netns.log || skipped "cannot make a network namespace here ($(head -1 netns.log))"
trap 'jobs -p | xargs -r kill -9 2>/dev/null; ip netns del $a; ip netns del $b 2>/dev/null; rm -rf "$work"' EXIT
ip netns add $b && ip link add veth0 netns $a type veth peer name veth0 netns $b || fail "veth"
ip -n $a addr add 10.77.3.1/24 dev veth0 && ip -n $b addr add 10.77.3.2/24 dev veth0 || fail "addresses"
for space in $a $b; do ip -n $space link set veth0 up && ip -n $space link set lo up || fail "links"; done

# firewall PORTS: of both hosts.
firewall() {
    local space
    for space in $a $b; do
        ip netns exec $space nft -f - 2> nft.log << NFT || skipped "nft has no such rules here ($(head -1 nft.log))"
flush ruleset
table inet firewall {
    chain input {
        type filter hook input priority 0; policy drop;
        ct state established,related accept
        iif "lo" accept
        tcp dport $1 accept
    }
}
NFT
    done
}
steps=5
on() {
    local space=$1 node=$2 folder=$3
    shift 3
    orrery="ip netns exec $space $orrery" run_tiny "$folder" $steps --nodes 2 --node-rank "$node" \
        --rendezvous 10.77.3.1:29500 "$@"
}
# both CODE FOLDER [more arguments]: the hosts' exit codes are this one.
both() {
    local code=$1 folder=$2 first found
    shift 2
    on $a 0 "$folder" "$@" > "$folder.a.log" 2>&1 &
    first=$!
    on $b 1 "$folder" "$@" > "$folder.b.log" 2>&1
    found=$?
    wait $first && first=0 || first=$?
    [ "$found $first" = "$code $code" ] ||
        { tail -n 30 "$folder".?.log; fail "$folder: exit codes $first and $found, expected $code"; }
}
# says FOLDER WORDS: on one of the hosts.
says() {
    local missing
    missing=$(missing_word "$2" "$(cat "$1".?.log)")
    [ -z "$missing" ] || { cat "$1".?.log; fail "$1: the message lacks \"$missing\""; }
}
export ORRERY_TOKEN=a-secret-of-both-hosts
run_tiny whole $steps > whole.log 2>&1 || { cat whole.log; fail "two ranks of one host"; }
losses whole > whole.txt
four=(--set mesh.dp=4 --set run.threads_per_rank=1)
# Four ranks of two hosts add in another order than those of one host.
both 0 whole4 --set run.transport=gloo "${four[@]}"
losses whole4 > whole4.txt

# 20 ports: that of the launchers, and 19 for all else, also after a restart.
firewall 29500-29519
ports=(--set run.ports=29501-29519)
both 0 gloo --set run.transport=gloo "${four[@]}" "${ports[@]}" --restarts 2
losses gloo | cmp - whole4.txt || fail "gloo: other losses than without a firewall"
echo "gloo: four ranks through 20 ports"
if [ -e "$(dirname "$orrery")/plugins/liborrery_transport_ucx.so" ]; then
    both 0 ucx --set run.transport=ucx --set transport.ucx.transports=tcp "${ports[@]}"
    losses ucx | cmp - whole.txt || fail "ucx: other losses than on one host"
    echo "ucx: two ranks through 20 ports"
fi
# Every listener is in the range, at any moment.
listens() { ip netns exec $a ss -Hltn | grep -o '10.77.3.1:[0-9]*' | sort -u; }
steps=100000
tiny_exec=exec on $a 0 runs --set run.transport=gloo "${ports[@]}" --restarts 2 > runs.a.log 2>&1 &
first=$!
tiny_exec=exec on $b 1 runs --set run.transport=gloo "${ports[@]}" --restarts 2 > runs.b.log 2>&1 &
wait_for steps_done runs 3 || { cat runs.?.log; fail "no steps"; }
listens > listens.txt
kill -INT $first
wait
[ "$(wc -l < listens.txt)" -eq 2 ] && ! grep -v ':295[01][0-9]$' listens.txt ||
    { cat listens.txt; fail "the launchers' and the ranks' rendezvous listen elsewhere"; }

steps=5
bound=(--set run.timeout_s=2 --set run.join_timeout_s=8)
both 1 chosen --set run.transport=gloo "${bound[@]}"
says chosen "transport gloo: rank |cannot connect to rank |10.77.3.|no answer within|run.ports|between both hosts|"
firewall 29500
both 1 closed --set run.transport=gloo "${bound[@]}" "${ports[@]}"
says closed "transport gloo: rank |cannot connect to rank |10.77.3.|no answer within|"
says closed "open the ports 29501-29519 (run.ports) between both hosts|"
both 1 alone --set run.transport=gloo "${bound[@]}" "${ports[@]}" --restarts 1
says alone "cannot reach the rendezvous at 10.77.3.1:295|is rank 0 or the launcher running there, and the port open?|"
echo "mistake: ports closed but one"

firewall 29500-29569
both 2 small --set run.transport=gloo "${four[@]}" --set run.ports=29501-29506
says small 'run.ports = "29501-29506" has 6 ports, but transport gloo needs 7 of this host|give a range of 7 ports|'
# Ports that no connection of the jobs before still holds for a minute.
cat > listen.py << 'PY'
import socket, sys, time
held = [socket.create_server(("10.77.3.2", port)) for port in range(29551, 29558)]
open("held", "w").close()
time.sleep(1000)
PY
ip netns exec $b python3 listen.py &
wait_for test -e held || fail "no other listener"
both 1 taken --set run.transport=gloo "${four[@]}" "${bound[@]}" --set run.ports=29551-29559
says taken 'of the 9 of run.ports = "29551-29559" it found only |free within|end other processes|'
if [ -e "$(dirname "$orrery")/plugins/liborrery_transport_ucx.so" ]; then
    both 1 taken_ucx --set run.transport=ucx --set transport.ucx.transports=tcp --set run.timeout_s=2 \
        --set run.ports=29551-29557
    says taken_ucx 'ports of this host, one for each member, but of the 7 of run.ports = "29551-29557" 0 are free|'
fi
for wrong in 29501 29501- 0-10 29510-29501 29501-70000 "29501-29510 " a-b; do
    refused "run.ports = \"$wrong\": expected FIRST-LAST|29501-29600" run_tiny bad 5 --set run.ports="\"$wrong\""
done
echo "1 passed, 0 failed"
