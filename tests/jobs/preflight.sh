#!/usr/bin/env bash
# `orrery preflight`: what is fit passes over every transport; a rank beside busy loops, a link that is shaped down and
# a folder that takes nothing are named; mistakes start nothing. Faults are planted large and judged against other
# ranks of the same run; where no fault is planted, no speed that a busy machine could show is too slow: a message that
# waits for a processor can take a thousand times as long as others do.
source "$(dirname "$0")/lib.sh"
any_speed=0.000001

# preflight CODE NAME ARGUMENTS...: exit code CODE; output in NAME.txt, errors in NAME.err.
preflight() {
    local code=$1 name=$2 found
    shift 2
    timeout 120 "$orrery" preflight --quick "$@" > "$name.txt" 2> "$name.err"
    found=$?
    [ $found -eq "$code" ] || { cat "$name.txt" "$name.err"; fail "preflight $*: exit code $found, expected $code"; }
}
count() { grep -o "$1" "$2" | wc -l; }

transports=shm
for transport in gloo ucx; do
    [ -e "$(dirname "$orrery")/plugins/liborrery_transport_$transport.so" ] && transports+=" $transport"
done
for transport in $transports; do
    for ranks in 2 4; do
        name=$transport$ranks
        preflight 0 $name --transport $transport --ranks $ranks --folder made/here --slow $any_speed --json
        [ "$(wc -l < $name.txt)" = 1 ] || fail "$name: not one line of JSON"
        for part in '"fit":true' '"findings":\[\]' '"pairs_left_out":0'; do
            grep -q "$part" $name.txt || { cat $name.txt; fail "$name: no $part"; }
        done
        [ "$(count '"matrix_f32_flops_per_s"' $name.txt)" = $ranks ] || fail "$name: not $ranks ranks"
        [ "$(count '"both_bytes_per_s"' $name.txt)" = $((ranks * (ranks - 1) / 2)) ] || fail "$name: not all pairs"
        [ "$(count '"reach":"node"' $name.txt)" = 5 ] || fail "$name: not five collectives"
        grep -qE '"(write_bytes_per_s|latency_s|there_bytes_per_s|bus_bytes_per_s)":0(\.0)?[,}]' $name.txt &&
            { cat $name.txt; fail "$name: something was not measured"; }
    done
done
[ ! -e made/here/.preflight-0 ] && [ -z "$(find . -name '.preflight*')" ] || fail "a file of a preflight is left"
preflight 0 one --ranks 1 --folder one
grep -q "^1 rank on 1 node: " one.txt &&
    grep -q "^nothing was compared: one rank and no expected figures; give --cluster FILE or " one.txt ||
    { cat one.txt; fail "a rank alone"; }
preflight 0 text --transport shm --slow $any_speed
for words in "^2 ranks on 1 node: " "^links inside nodes " "^0 - 1 " "^all_reduce  *2 of a node " \
    "^fit, but ranks were only compared with each other: no expected figures; give "
do
    grep -q "$words" text.txt || { cat text.txt; fail "no '$words' in the tables"; }
done
grep -q "^preflight of 2 ranks over shm, device cpu, storage in [.]; takes about" text.err ||
    fail "it says not what it does"
echo "fit over $transports"
# A cluster's file says what the machines do; flags say more. No processor has an H100's memory.
h100=$source_root/configs/clusters/h100.toml
preflight 1 cluster --ranks 1 --cluster "$h100" --expect storage_read_gb_s=0.000001
grep -q "^expected ($h100, --expect): matrix_f32_tflops 67, matrix_bf16_tflops 989, memory_gb_s 3350, " cluster.txt &&
    grep -q "^fit from: matrix rate 70 %, memory bandwidth 70 %, link inside a node 89 %, fabric 80 %" cluster.txt &&
    grep -q "memory bandwidth: .* of the expected 3.35 TB/s; the minimum is 70 %" cluster.txt ||
    { cat cluster.txt; fail "what the cluster's file says is not held against the machine"; }
preflight 1 cluster --ranks 1 --cluster "$h100" --json
grep -q '"expected":{"from":"[^"]*h100.toml","bars":{[^}]*},"matrix_f32_tflops":67.0' cluster.txt ||
    { cat cluster.txt; fail "the JSON does not say what was expected"; }

# Under torchrun's variables, rank 1 on a processor of its own beside twenty busy loops. busy_rank: 0 when it was slow
# and is named, 1 when it was not slow: others may keep the other processor as busy.
busy_rank() {
    local port code named
    port=$(free_port)
    as_rank 1 2 "$port" taskset -c "${processors[1]}" timeout 200 "$orrery" preflight --quick --transport gloo \
        --slow 0.6 --json > busy1.txt 2>&1 &
    as_rank 0 2 "$port" taskset -c "${processors[0]}" timeout 200 "$orrery" preflight --quick --transport gloo \
        --slow 0.6 --json > busy.txt 2> busy.err
    code=$?
    wait $!
    [ $? -eq $code ] || { cat busy.txt busy.err busy1.txt; fail "ranks end with other exit codes"; }
    [ ! -s busy1.txt ] || { cat busy1.txt; fail "rank 1 prints"; }
    grep -o '"matrix_f32_flops_per_s":[0-9.e+]*' busy.txt | cut -d: -f2 | paste -sd' ' > rates.txt
    awk '{ exit !($2 < 0.6 * $1) }' rates.txt || return 1
    named='"ranks":\[1\],"subject":"rank 1 (host [^"]*)","what":"matrix rate of f32","reason":"[^"]*"'
    [ $code -eq 1 ] && grep -o "$named" busy.txt || { cat busy.txt busy.err; fail "the busy rank is not named"; }
}
mapfile -t processors < <(taskset -pc $$ 2> /dev/null | sed 's/.*: //' | tr ',' '\n' |
    awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); ++i) print i }' | tail -2)
if [ "${#processors[@]}" -eq 2 ]; then
    loops=()
    for _ in $(seq 20); do
        taskset -c "${processors[1]}" sh -c 'while :; do :; done' &
        loops+=($!)
    done
    busy_rank || busy_rank || echo "not tested: others keep both processors busy, FLOP/s $(cat rates.txt)"
    kill "${loops[@]}"
    wait "${loops[@]}" 2> /dev/null
else
    echo "skipped: a busy rank needs a second processor, or taskset"
fi

# A folder that takes no more, on one rank alone; SIGXFSZ ignored, as a full disk has none.
port=$(free_port)
(
    trap '' XFSZ
    ulimit -f 200
    as_rank 1 2 "$port" timeout 100 "$orrery" preflight --quick --transport gloo --slow $any_speed --folder disk
) > full1.txt 2>&1 &
second=$!
as_rank 0 2 "$port" timeout 100 "$orrery" preflight --quick --transport gloo --slow $any_speed --folder disk \
    > full.txt 2> full.err
code=$?
wait $second
[ $code -eq 1 ] && [ "$(grep -c '^  ' full.txt)" = 1 ] ||
    { cat full.txt full.err full1.txt; fail "a full disk: $code"; }
grep -q "^  rank 1 (host .*): storage: cannot write .* to a file in disk: File too large" full.txt ||
    { cat full.txt; fail "the rank of the full disk is not named"; }
grep "File too large" full.txt
mkdir -p ro
if unshare -m sh -c 'mount -t tmpfs -o ro tmpfs ro' 2> /dev/null; then
    unshare -m sh -c 'mount -t tmpfs -o ro tmpfs ro && exec "$@"' - timeout 100 "$orrery" preflight --quick \
        --transport gloo --slow $any_speed --folder ro > ro.txt 2> ro.err
    [ $? -eq 1 ] && [ "$(grep -c "storage: cannot make a file in ro: Read-only file system" ro.txt)" = 2 ] ||
        { cat ro.txt ro.err; fail "a read-only folder"; }
    grep -m 1 "Read-only" ro.txt
else
    echo "skipped: cannot mount a read-only folder here"
fi

# refused WORDS ARGUMENTS...: exit code 2 and every word, before anything is measured.
refused() {
    local words=$1 word
    shift
    preflight 2 refused "$@"
    word=$(missing_word "$words" "$(cat refused.err refused.txt)")
    [ -z "$word" ] || { cat refused.err refused.txt; fail "preflight $*: no \"$word\""; }
    grep -q "takes about" refused.err && fail "preflight $*: it started"
}
refused 'no transport "shmm"|did you mean "shm"' --transport shmm
refused 'no device "cpuu"|did you mean "cpu"' --device cpuu
refused 'transport threads runs ranks as threads|between processes' --transport threads
refused 'unknown key "intreface" in [transport.gloo]|did you mean "interface"' --transport gloo \
    --set transport.gloo.intreface=x
refused '--set train.steps=4|does not read this' --set train.steps=4
refused '--expect fabric=1: unknown quantity|fabric_gb_s' --expect fabric=1
refused 'expected fabric_gb_s=NUMBER' --expect fabric_gb_s=fast
refused 'nowhere.toml' --cluster nowhere.toml
refused '--slow 2: expected a fraction' --slow 2
refused '--ranks 0: expected 1 to' --ranks 0
refused 'needs --rendezvous HOST:PORT' --nodes 2 --transport gloo
ORRERY_TOKEN=a-secret-of-this-test refused 'shm connects ranks on one host only|--transport gloo' --ranks 2 --nodes 2 \
    --rendezvous 10.0.0.1:29500 --transport shm
refused 'did you mean "--transport"' --transprt gloo

# A rank that does not come, and one that dies.
as_rank 0 2 "$(free_port)" timeout 60 "$orrery" preflight --quick --transport gloo --set run.timeout_s=2 \
    > alone.txt 2>&1
[ $? -eq 1 ] && grep -q "rank 1" alone.txt || { cat alone.txt; fail "a rank that does not come is not named"; }
"$orrery" preflight --transport gloo > dies.txt 2>&1 &
launcher=$!
wait_for two_ranks $launcher && wait_for grep -q "takes about" dies.txt || { cat dies.txt; fail "no ranks"; }
kill -9 "$(ranks_of $launcher | tail -1)"
wait $launcher
[ $? -eq 1 ] && grep -q "rank 1 .*was killed by signal 9" dies.txt || { cat dies.txt; fail "a rank that dies"; }

# Three "hosts" (network namespaces), a cable between each two; that of ranks 1 and 2 shaped down in one direction.
space() { echo "orrery-$1-$$"; }
hosts="0 1 2"
if ! ip netns add "$(space 0)" 2> netns.log; then
    echo "skipped: cannot make a network namespace here ($(head -1 netns.log))"
    echo "1 passed, 0 failed"
    exit 0
fi
trap 'jobs -p | xargs -r kill -9 2>/dev/null; for n in $hosts; do ip netns del "$(space $n)" 2>/dev/null; done
    rm -rf "$work"' EXIT
ip netns add "$(space 1)" && ip netns add "$(space 2)" || fail "namespaces"
for n in $hosts; do
    ip -n "$(space $n)" link set lo up && ip -n "$(space $n)" addr add 10.77.0.$((n + 1))/32 dev lo || fail "host $n"
done
cable() {
    ip link add "to$2" netns "$(space $1)" type veth peer name "to$1" netns "$(space $2)" || fail "cable $1 $2"
    ip -n "$(space $1)" link set "to$2" up && ip -n "$(space $2)" link set "to$1" up || fail "ends of $1 $2"
    ip -n "$(space $1)" route add 10.77.0.$(($2 + 1)) dev "to$2" src 10.77.0.$(($1 + 1)) || fail "route $1 $2"
    ip -n "$(space $2)" route add 10.77.0.$(($1 + 1)) dev "to$1" src 10.77.0.$(($2 + 1)) || fail "route $2 $1"
}
cable 0 1 && cable 0 2 && cable 1 2
# shape HOST OTHER RATE: what the host sends to the other one. The good links are shaped too, to a rate that they keep
# while other jobs have the processors: how much they differ otherwise decides whether a slow one is an outlier.
shape() { tc -n "$(space $1)" qdisc add dev "to$2" root tbf rate "$3" burst 8kb latency 1s 2> tc.log; }
if ! shape 1 2 1mbit; then
    echo "skipped: cannot shape a link here ($(head -1 tc.log))"
    echo "1 passed, 0 failed"
    exit 0
fi
for ends in "0 1" "1 0" "0 2" "2 0" "2 1"; do
    shape $ends 100mbit || { cat tc.log; fail "link $ends is not shaped"; }
done
# on_hosts NAME HOSTS ARGUMENTS...: a rank on each of them; the exit code of the first one.
on_hosts() {
    local name=$1 list=$2 n rank=0 size pids=()
    shift 2
    size=$(wc -w <<< "$list")
    for n in $list; do
        ip netns exec "$(space $n)" env RANK=$rank WORLD_SIZE="$size" LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 \
            MASTER_ADDR=10.77.0.$((${list%% *} + 1)) MASTER_PORT=29877 ORRERY_TOKEN=a-secret-of-this-test \
            timeout 200 "$orrery" preflight --quick --transport gloo "$@" > "$name.$rank.txt" 2>&1 &
        pids[rank]=$!
        rank=$((rank + 1))
    done
    wait "${pids[@]:1}"
    wait "${pids[0]}"
}
# No message fits into the burst: the smallest has 64 KiB.
on_hosts shaped "0 1 2" --slow 0.05
[ $? -eq 1 ] || { cat shaped.*.txt; fail "a link that is shaped down: not exit code 1"; }
link="^  link rank 1 (host .*) -> rank 2 (host .*): "
grep -q "${link}bandwidth between nodes: .*of the other links' median" shaped.0.txt ||
    { cat shaped.*.txt; fail "the link that is shaped down is not named with both ends"; }
grep "^  .*bandwidth" shaped.0.txt | grep -v "$link" && { cat shaped.0.txt; fail "another link is named"; }
grep "^  link rank 1" shaped.0.txt | head -1
# Of one link alone only what is expected tells.
on_hosts two "1 2" --slow 0.01 --expect fabric_gb_s=0.1
[ $? -eq 1 ] &&
    grep -q "^  link rank 0 (host .*) -> rank 1 .*bandwidth one way: .*of the expected 100 MB/s" two.0.txt ||
    { cat two.*.txt; fail "the only link, shaped down, is not named"; }
echo "1 passed, 0 failed"
