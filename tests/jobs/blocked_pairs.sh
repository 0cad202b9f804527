#!/usr/bin/env bash
# Three nodes (network namespaces), of which two reach the first but not each other, or pass small packets alone (a
# smaller MTU on the way): every process ends within 10 s of the first one that ends, no later than run.timeout_s + 10 s
# after the fault, and the cause is named; `preflight` names the pair. ORRERY_LONG: 20 such jobs over gloo and ucx, at
# their start and while they train, and 30 node checks at once, some of them killed: a table.
# Runs alone: it limits the time from the first process that ends to the last.
source "$(dirname "$0")/lib.sh"
long=${ORRERY_LONG:-}
switch=orrery-bs-$$
space() { echo "orrery-b$1-$$"; }
address() { echo "10.77.2.$(($1 + 1))"; }
if ! ip netns add $switch 2> netns.log; then
    echo "skipped: cannot make a network namespace here ($(head -1 netns.log))"
    exit 77
fi
clean() {
    local n
    jobs -p | xargs -r kill -9 2> /dev/null
    for n in 0 1 2; do
        ip netns pids "$(space $n)" 2> /dev/null | xargs -r kill -9
        ip netns del "$(space $n)" 2> /dev/null
    done
    ip netns del $switch
    rm -rf "$work"
}
trap clean EXIT
skipped() { echo "skipped: $1 ($(head -1 "$2"))"; exit 77; }
ip -n $switch link add bridge type bridge 2> bridge.log || skipped "this kernel has no bridges" bridge.log
ip -n $switch link set bridge up || fail "the switch"
for n in 0 1 2; do
    ip netns add "$(space $n)" && ip link add veth0 netns "$(space $n)" type veth peer name veth$n netns $switch &&
        ip -n $switch link set veth$n master bridge up && ip -n "$(space $n)" addr add "$(address $n)/24" dev veth0 &&
        ip -n "$(space $n)" link set veth0 up && ip -n "$(space $n)" link set lo up || fail "node $n"
done
# Nodes 1 and 2 are joined by a cable of their own, so that a fault there touches no other link.
ip link add cable netns "$(space 1)" type veth peer name cable netns "$(space 2)" || fail "the cable"
for n in 1 2; do
    ip -n "$(space $n)" link set cable up &&
        ip -n "$(space $n)" route add "$(address $((3 - n)))/32" dev cable src "$(address $n)" ||
        fail "the cable's end $n"
done
# blocked: packets go to a network card that is not there. mtu: those of more than 1,000 bytes are dropped, one way.
fault() {
    local n
    case $1 in
    blocked) for n in 1 2; do
        ip -n "$(space $n)" neigh replace "$(address $((3 - n)))" lladdr 02:00:00:00:00:99 dev cable nud permanent ||
            fail "cannot block node $n"
    done ;;
    mtu) tc -n "$(space "$2")" qdisc replace dev cable root tbf rate 1gbit burst 1000b limit 1mb 2> tbf.log ||
        skipped "this kernel has no tbf" tbf.log ;;
    esac
}
repair() {
    local n
    for n in 1 2; do
        ip -n "$(space $n)" neigh del "$(address $((3 - n)))" dev cable 2> /dev/null
        tc -n "$(space $n)" qdisc del dev cable root 2> /dev/null
    done
}

export ORRERY_TOKEN=a-secret-of-all-nodes
bound=3
# node NUMBER ARGUMENTS...: its launcher's exit code and when it ended, in NUMBER.end.
node() {
    local n=$1
    shift
    ip netns exec "$(space "$n")" timeout 120 "$orrery" "$@" --nodes 3 --node-rank "$n" \
        --rendezvous "$(address 0):29873" > "$n.log" 2>&1
    echo "$? $(date +%s%N)" > "$n.end"
}
train=(run "$source_root/scripts/gpt.lua" --set run.seed=5 --set mesh.dp=3 --set data.path=text.txt
    --set data.tokens_per_sequence=32 --set train.sequences_per_step=3 --set train.evaluate_every=0
    --set checkpoint.every_steps=0 --set script.layers=1 --set script.embed=24 --set script.heads=3
    --set run.threads_per_rank=1 --set run.timeout_s=$bound --set transport.ucx.transports=tcp)
started() { steps_done run 3; }
logs() { tail -n 6 [012].log >&2; }

# job TRANSPORT FAULT WHEN [NODE]: `words` name the cause.
job() {
    local transport=$1 kind=$2 when=$3 side=${4:-1} n begin first=0 last=0 code ended words steps=3
    rm -rf [012].log [012].end run
    repair
    [ "$when" = start ] && fault "$kind" "$side"
    [ "$when" = start ] || steps=100000000
    begin=$(date +%s%N)
    for n in 0 1 2; do
        node $n "${train[@]}" --set run.folder=run --set run.transport="$transport" --set train.steps=$steps &
    done
    if [ "$when" != start ]; then
        wait_for started || { logs; fail "$*: no step"; }
        fault "$kind" "$side"
        begin=$(date +%s%N)
    fi
    wait $(jobs -p)
    for n in 0 1 2; do
        read -r code ended < $n.end
        [ "$code" = 1 ] || { logs; fail "$*: node $n ended with $code, expected 1"; }
        [ $first -ne 0 ] && [ $first -le "$ended" ] || first=$ended
        [ $last -ge "$ended" ] || last=$ended
    done
    spread=$(((last - first) / 1000000))
    total=$(((last - begin) / 1000000))
    [ $spread -le 10000 ] || { logs; fail "$*: the last one ended $spread ms after the first one"; }
    # Before the fault at a start there is nothing but a start, of a moment.
    [ $total -le $((bound * 1000 + 10000)) ] || { logs; fail "$*: ended $total ms after the fault"; }
    case $when/$kind in
    start/blocked) words="transport $transport: .*rank [12].*rank [12] on host .* at 10\.77\.2\.[23]" ;;
    start/mtu)
        words="transport $transport: .*rank [12] on host .* at 10\.77\.2\.[23].*between rank [12] and rank [12], [0-9]*"
        words+=" of [0-9]* test bytes arrived: messages of [0-9]* bytes arrive, one of [0-9]* bytes does not.*MTU" ;;
    *) words="over $transport it waited for a message of [0-9]* bytes .*rank [12] on host .* at 10\.77\.2\.[23]" ;;
    esac
    # In a step a rank may wait for another one than the pair's, which waits for it in turn.
    cat [12].log | grep -qE "$words" || { logs; fail "$*: the cause is not named"; }
    [ "$when" != start ] || [ "$(grep -lE "$words" [012].log | wc -l)" = 3 ] ||
        { logs; fail "$*: a node does not name the cause"; }
    echo "$transport, $kind, $when: all ended $total ms after the fault, within $spread ms"
}

# The pair is named, and no other.
preflight() {
    local transport=$1 kind=$2 words=$3 n code
    rm -f [012].log [012].end
    repair
    fault "$kind" 1
    for n in 0 1 2; do
        node $n preflight --quick --ranks 3 --transport "$transport" --set transport.ucx.transports=tcp \
            --set run.timeout_s=$bound --folder . &
    done
    wait $(jobs -p)
    read -r code _ < 0.end
    [ "$code" = 1 ] && [ "$(grep -c '^  link ' 0.log)" = 1 ] &&
        grep -qE "^  link rank 1 \(host .*\) - rank 2 \(host .*\): connection: .*$words" 0.log ||
        { logs; fail "preflight over $transport, $kind: the pair is not named (exit code $code)"; }
    grep '^  link' 0.log | cut -c1-300
}

ucx=
[ -e "$(dirname "$orrery")/plugins/liborrery_transport_ucx.so" ] && ucx=ucx
rows() {
    local transport
    if [ -z "$long" ]; then
        job gloo blocked start
        job ${ucx:-gloo} mtu start
        return
    fi
    # In a ring node 2 sends nothing large to node 1: only the greeting finds a smaller MTU there.
    for transport in gloo $ucx; do
        for _ in 1 2; do
            job $transport blocked start
            job $transport mtu start 1
            job $transport mtu start 2
            job $transport blocked training
            job $transport mtu training 1
        done
    done
}
rows > rows.txt || { cat rows.txt; exit 1; }
cat rows.txt
preflight gloo mtu "messages of [0-9]* bytes arrive, one of [0-9]* bytes does not" | tee pair.txt
[ "${PIPESTATUS[0]}" -eq 0 ] || exit 1
repair
[ -n "$long" ] || { echo "1 passed, 0 failed"; exit 0; }
preflight gloo blocked "rank [12] cannot connect to rank [12]" >> pair.txt || { cat pair.txt; exit 1; }
[ -z "$ucx" ] || preflight ucx blocked "0 of [0-9]* test bytes arrived" >> pair.txt || { cat pair.txt; exit 1; }
repair

# Node checks of containers, all with the same process numbers, in one folder.
mkdir checks
checks=()
for n in $(seq 30); do
    limit=100
    [ $((n % 3)) -ne 0 ] || limit=$((n / 6)).5
    timeout -s KILL $limit unshare -p -f --kill-child "$orrery" preflight --quick --ranks 1 --folder checks \
        --slow 0.01 > check.$n.txt 2>&1 &
    checks[n]=$!
done
unfit=0 killed=0
for n in $(seq 30); do
    wait "${checks[n]}" 2> /dev/null
    case $? in
    0) ;;
    137) killed=$((killed + 1)) ;;
    *) cat check.$n.txt; unfit=$((unfit + 1)) ;;
    esac
done
left=$(find checks -type f | wc -l)
[ $unfit -eq 0 ] && [ "$left" -eq 0 ] ||
    { ls -la checks; fail "$unfit checks found the node unfit, $left files are left"; }
{
    jobs=$(wc -l < rows.txt)
    echo "three nodes, run.timeout_s = $bound: $jobs jobs, each ended with exit code 1 and named its cause"
    cat rows.txt
    echo "preflight named the pair in $(wc -l < pair.txt) of $(wc -l < pair.txt)"
    fit=$((30 - killed - unfit))
    echo "30 node checks at once in pid namespaces: $killed killed, $fit fit, $unfit unfit, $left files left"
} | tee "$long"
echo "1 passed, 0 failed"
