#!/usr/bin/env bash
# A device, transports, a store, a data source, strategies and a launcher from out of tree, which are shipped ones under
# names that core has never heard of, do what the shipped ones do. With ORRERY_LONG: each command, and two hosts.
# usage: new_names.sh SOURCE BUILD
set -eu
source=$1 build=$2 made=$2/tests/new_names${ORRERY_LONG:+_long}
rm -rf "$made"
mkdir -p "$made"
cmake --install "$build" --prefix "$made/prefix" > "$made/log.txt"
export ORRERY_PROGRAM=$made/prefix/bin/orrery
[ -x "$ORRERY_PROGRAM" ] || { echo "skipped: there is no program"; exit 77; }
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
flags=$(sed -n 's/^ORRERY_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt" | tr ';' ',')
[ -z "$flags" ] || export CXXFLAGS="-fsanitize=$flags" LDFLAGS="-fsanitize=$flags"
cmake -S "$source/tests/plugins/new_names" -B "$made/build" -G Ninja -DCMAKE_PREFIX_PATH="$made/prefix" \
    -DCMAKE_CXX_COMPILER="$compiler" -DSHIPPED="$made/prefix/lib/orrery/plugins" \
    -DALL_NAMES="${ORRERY_LONG:+ON}" >> "$made/log.txt" 2>&1 || { tail -n 20 "$made/log.txt"; exit 1; }
cmake --build "$made/build" >> "$made/log.txt" 2>&1 || { tail -n 40 "$made/log.txt"; exit 1; }

source "$source/tests/jobs/lib.sh"
set +e
# The same script by new names; what both read.
mkdir -p new/scripts
sed -e 's/ replicate = replicate,//' -e 's/o\.strategy\.data \(.*\), zero = opt\.zero/o.strategy.copies \1/' \
    -e 's/o\.data\.file { documents = opt\.documents }/o.data.prose {}/' \
    ${ORRERY_LONG:+-e 's/o\.strategy\.tensor/o.strategy.slices/' -e 's/o\.strategy\.pipeline/o.strategy.stages/'} \
    "$source/scripts/gpt.lua" > new/scripts/gpt.lua
renamed=2
[ -z "${ORRERY_LONG:-}" ] || renamed=4
[ "$(diff "$source/scripts/gpt.lua" new/scripts/gpt.lua | grep -c '^>')" -eq $renamed ] ||
    fail "scripts/gpt.lua calls its plugins otherwise"
new=(--set "plugins.path=[\"$made/build/plugins\"]" --set run.device=abacus --set run.transport=pipes
     --set run.store=vault)
# The rate is constant, so that a run of fewer steps is the beginning of one of more.
both=(--set script.floor=1 --set script.heads=4)
run_old() { run_tiny "$1" "$2" "${both[@]}" "${@:3}" > "$1.log" 2>&1 || { cat "$1.log"; fail "run $*"; }; }
tiny_new() { source_root=$work/new run_tiny "$1" "$2" "${both[@]}" "${new[@]}" "${@:3}"; }
run_new() { tiny_new "$@" > "$1.log" 2>&1 || { cat "$1.log"; fail "run $* by new names"; }; }
same() {
    losses "$1" > one.txt
    losses "$2" > two.txt
    [ -s one.txt ] && cmp -s one.txt two.txt || { diff one.txt two.txt | head -n 4; fail "$1 and $2: other losses"; }
}
has() { grep -q -- "$2" "$1" || { cat "$1"; fail "$1 lacks \"$2\""; }; }

exits 0 plugins "$orrery" plugins "$made/build/plugins"
[ "$(grep -c "$made/build/plugins/lib" plugins.txt)" -eq "$(ls "$made/build/plugins" | wc -l)" ] ||
    { cat plugins.txt; fail "one cannot be used"; }
has plugins.txt "facts: host_memory leaves_nothing"

# Two ranks, stopped after 12 steps and resumed to 24.
run_old shipped 24
run_new renamed 12
run_new renamed 24
same shipped renamed
has renamed/config.toml "vault"
echo "two ranks, resumed: the losses of the shipped plugins"

# Under a launcher of a new name.
port=$(free_port)
# as_herald RANK RANKS LOCAL LOCALS COMMAND...
as_herald() {
    env HERALD_RANK="$1" HERALD_RANKS="$2" HERALD_LOCAL_RANK="$3" HERALD_LOCAL_RANKS="$4" MASTER_PORT="$port" \
        ORRERY_TOKEN=a-secret-of-this-test "${@:5}"
}
herald() {
    local rank=$1
    shift
    orrery="as_herald $rank 2 $rank 2 $orrery" tiny_new "$@"
}
herald 1 called 24 > called.1.log 2>&1 &
other=$!
herald 0 called 24 > called.log 2>&1 || { cat called.log called.1.log; fail "rank 0 of the herald"; }
wait $other || { cat called.1.log; fail "rank 1 of the herald"; }
same shipped called
while IFS='|' read -r more reason; do
    # shellcheck disable=SC2086
    ! herald 0 refused 24 $more > refused.log 2>&1 || fail "$more is taken under the herald"
    has refused.log "$reason"
done << 'END'
--restarts 2|herald
--nodes 2|herald
--set run.ranks=1|run.ranks = 1, but herald started 2
END
HERALD_HOSTS=2 run_new left_out 2
has left_out.log "the herald has more hosts"
echo "two ranks of another launcher: the same losses"
[ -n "${ORRERY_LONG:-}" ] || exit 0

run_old old_pp 8 --set mesh.dp=1 --set mesh.tp=2 --set mesh.pp=2 --set train.microbatches=2 --set run.transport=gloo
run_new new_pp 8 --set mesh.dp=1 --set mesh.tp=2 --set mesh.pp=2 --set train.microbatches=2 --set run.transport=ether
same old_pp new_pp
run_new threads 24 --set run.transport=strands
same shipped threads
run_new met 24 --set run.rendezvous=square
same shipped met
run_new kept 24 --set run.store=ledger --set run.transport=strands
same shipped kept
echo "tensor and pipeline, threads, another rendezvous, a store in memory: the losses of the shipped plugins"

tiny_exec=exec tiny_new again 120 --restarts 1 > again.log 2>&1 &
pid=$!
wait_for steps_done again 30 || { cat again.log; fail "no steps of a job that may restart"; }
kill -KILL "$(ranks_of $pid | tail -n 1)"
wait $pid || { cat again.log; fail "a job that may restart"; }
losses again | head -n 24 | cmp - one.txt || fail "a job that was restarted: other losses"
[ "$(losses again | wc -l)" -eq 120 ] || fail "a job that was restarted does not reach its last step"
for what in "list renamed" "show renamed 20" "verify renamed all" "prune renamed --keep 2 --dry-run"; do
    # shellcheck disable=SC2086
    exits 0 checkpoints "$orrery" checkpoints $what
done
exits 0 verify "$orrery" verify new/scripts/gpt.lua --set data.path=text.txt --set data.tokens_per_sequence=16 \
    --set script.layers=1 --set script.embed=16 --set script.heads=2 --set mesh.dp=2 \
    --set train.sequences_per_step=4 --set train.steps=4 "${new[@]}"
exits 0 evaluate "$orrery" evaluate renamed text.txt
exits 0 shipped_evaluate "$orrery" evaluate shipped text.txt
cmp -s evaluate.txt shipped_evaluate.txt || { diff evaluate.txt shipped_evaluate.txt; fail "another perplexity"; }
echo "checkpoints, verify, evaluate: ok"

at=(--set "plugins.path=[\"$made/build/plugins\"]")
exits 0 calibrate "$orrery" calibrate --threads 1 --seconds 2 --transports pipes,ether --ranks 2 --bytes 4096 \
    -o table.json "${at[@]}" --set run.device=abacus
has table.json '"abacus"'
has table.json '"pipes"'
has table.json '"ether"'
for transport in pipes ether; do
    exits 0 bench "$orrery" bench all_reduce --transport $transport --ranks 2 -b 1K -e 4K "${at[@]}"
    has bench.txt "Out of bounds values : 0 OK"
done
exits 0 preflight "$orrery" preflight --quick --device abacus --transport ether --ranks 2 --slow 0.01 "${at[@]}"
echo "calibrate, bench, preflight: ok"

# Two hosts, which are network namespaces.
a=orrery-new-a-$$ b=orrery-new-b-$$
ip netns add $a 2> netns.log || { echo "two hosts: skipped ($(head -n 1 netns.log))"; exit 0; }
trap 'jobs -p | xargs -r kill -9 2>/dev/null; ip netns del $a; ip netns del $b 2>/dev/null; rm -rf "$work"' EXIT
ip netns add $b
ip link add veth-a netns $a type veth peer name veth-b netns $b
ip -n $a addr add 10.79.0.1/24 dev veth-a && ip -n $a link set veth-a up && ip -n $a link set lo up
ip -n $b addr add 10.79.0.2/24 dev veth-b && ip -n $b link set veth-b up && ip -n $b link set lo up
export ORRERY_TOKEN=a-secret-of-both-hosts
on_host() {
    local namespace=$1 rank=$2 folder=$3
    shift 3
    orrery="ip netns exec $namespace $orrery" tiny_new "$folder" 24 --set run.transport=ether --nodes 2 \
        --node-rank "$rank" --rendezvous 10.79.0.1:29879 "$@"
}
on_host $b 1 hosts > hosts.1.log 2>&1 &
other=$!
on_host $a 0 hosts > hosts.log 2>&1 || { cat hosts.log hosts.1.log; fail "host a"; }
wait $other || { cat hosts.1.log; fail "host b"; }
same shipped hosts
herald_on() {
    local namespace=$1 rank=$2
    orrery="ip netns exec $namespace env MASTER_ADDR=10.79.0.1 HERALD_RANK=$rank HERALD_RANKS=2 HERALD_LOCAL_RANK=0 \
        HERALD_LOCAL_RANKS=1 MASTER_PORT=29880 $orrery" tiny_new called_hosts 24 --set run.transport=ether
}
herald_on $b 1 > hosts.1.log 2>&1 &
other=$!
herald_on $a 0 > hosts.log 2>&1 || { cat hosts.log hosts.1.log; fail "host a of the herald"; }
wait $other || { cat hosts.1.log; fail "host b of the herald"; }
same shipped called_hosts
echo "two hosts, started by orrery and by another launcher: the losses of one"
