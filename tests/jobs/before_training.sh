#!/usr/bin/env bash
# What goes wrong before training, on one host of two or one rank of two, ends all within moments, and each says what it
# was: no rank waits for run.join_timeout_s.
# Runs alone: each drill has to end within half of the time that ranks may take to come.
source "$(dirname "$0")/lib.sh"
address=$(hostname -I 2> /dev/null | tr ' ' '\n' | grep -m1 -v : || true)
[ -n "$address" ] || { echo "skipped: this host has no address but its loopback"; exit 77; }
export ORRERY_TOKEN=a-secret-of-both-hosts
joining=60   # what a rank would wait; nobody may come near it
slowest=0

# node NUMBER [more arguments]: one of two launchers, of a rank each.
node() {
    local number=$1
    shift
    run_tiny "$folder" 4 --set run.transport=gloo --set run.join_timeout_s=$joining --set train.log_every=1 \
        --nodes "$([ "$number" = 0 ] && echo "${nodes:-2}" || echo 2)" --node-rank "$number" \
        --rendezvous "$address:$port" "$@" > "$folder.$number.log" 2>&1
}

# drill NAME WORDS CODES -- arguments of node 0 -- arguments of node 1: both end, with these exit codes, and each log
# has its words ("words of 0;words of 1", several separated by |).
drill() {
    local name=$1 words=$2 codes=$3 first=() second=() code0 code1 word number
    shift 4
    while [ "$1" != -- ]; do first+=("$1"); shift; done
    shift
    second=("$@")
    folder=${name// /_}
    port=$(free_port)
    local begin=$SECONDS
    node 0 "${first[@]}" &
    local zero=$!
    sleep "${head_start:-0}"
    node 1 "${second[@]}"
    code1=$?
    wait $zero
    code0=$?
    local took=$((SECONDS - begin))
    for number in 0 1; do
        word=$(missing_word "$(echo "$words" | cut -d';' -f$((number + 1)))" "$(< "$folder.$number.log")")
        [ -z "$word" ] || { head -20 "$folder".?.log; fail "$name: node $number does not say \"$word\""; }
    done
    [ "$code0 $code1" = "$codes" ] ||
        { head -20 "$folder".?.log; fail "$name: exit codes $code0 $code1, expected $codes"; }
    [ $took -lt $((joining / 2)) ] || { cat "$folder".?.log; fail "$name: took $took s"; }
    [ $took -le $slowest ] || slowest=$took
    echo "$name: ended after $took s: $(grep -m1 'orrery: ' "$folder.$((1 - ${teller:-1})).log" | cut -c1-200)"
}

drill "missing data on node 1" "launcher of node 1|nowhere.txt;nowhere.txt|data.path" "2 2" -- \
    -- --set data.path=nowhere.txt
teller=0 head_start=0 drill "missing data on node 0" "nowhere.txt|data.path;launcher of node 0|nowhere.txt" "2 2" -- \
    --set data.path=nowhere.txt --
drill "fresh on node 1 alone" "node 0, which moves the run's folder aside;give it to node 0 as well" "2 2" -- -- --fresh
# A folder in use is found out when the ranks of node 1 may have come already.
mkdir in_use
flock -F in_use/.lock sleep 60 2> /dev/null &
holder=$!
head_start=0 teller=0 drill "a folder in use" "in use by another run;launcher of node 0|in use by another" "2 2" -- \
    --set run.folder=in_use -- --set run.folder=in_use
kill $holder
wait $holder 2> /dev/null
shape="1 on each host, this process expects 4 ranks, 2 on each host"
nodes=4 drill "another --nodes" "launcher of node 1|$shape|--nodes;--nodes|$shape" "2 2" -- --set mesh.dp=4 \
    -- --set mesh.dp=4
# With --restarts the launchers meet, and node 0 decides: a mistake on one node ends the job, whatever --wait-node is.
again="--restarts 2 --wait-node 60" six="--set mesh.dp=6 --set train.sequences_per_step=6"
drill "missing data on node 1, restarts" "the job ends: node 1 is missing|nowhere.txt;nowhere.txt" "2 2" -- $again \
    -- $again --set data.path=nowhere.txt
teller=0 head_start=0 drill "missing data on node 0, restarts" "nowhere.txt;launcher of node 0|nowhere.txt" "2 2" -- \
    $again --set data.path=nowhere.txt -- $again
drill "no configuration on node 1, restarts" "the job ends: node 1 is missing|gone.toml;gone.toml" "2 2" -- $again \
    -- $again --config gone.toml
drill "no plugin on node 1, restarts" "the job ends: node 1 is missing|\"glue\";\"glue\"" "2 2" -- $again \
    -- $again --set run.transport=glue
nodes=3 drill "another --nodes, restarts" "node 1 is missing|--nodes;the running job has 3" "2 2" -- $again $six \
    -- $again $six
drill "another mesh, restarts" "the job ends: rank|the running job has 2;the running job has 2" "2 2" -- $again \
    -- $again --set mesh.dp=4
drill "restarts on node 1 alone" "launcher of node 1|in the same way;without --restarts" "2 2" -- -- $again
drill "restarts on node 0 alone" "node 1 is missing|in the same way;with --restarts" "2 2" -- $again --
hosts="rank 1 on host $(hostname) and rank 0 on host $(hostname)"
# differs NAME KEY VALUE OF_RANK_0: a setting that node 1 has otherwise.
differs() {
    drill "$1" "$hosts|$2: $3, rank 0 has $4;$hosts|$2: $3, rank 0 has $4" "2 2" -- --set "$2=$4" -- --set "$2=$3"
}
differs "another transport" run.transport ucx gloo
differs "another setting of the script" script.lr 0.02 0.003
differs "another embedding" script.embed 24 48
differs "another precision" train.precision bf16 f32

# A refused token ends its sender alone; who waits in vain is told of it.
joining=8
port=$(free_port)
folder=stranger
node 0 &
waiter=$!
listening() { (: < "/dev/tcp/$address/$port") 2> /dev/null; }
wait_for listening
ORRERY_TOKEN=another-secret-here node 1 && fail "another token was taken"
grep -q "the job token does not match" stranger.1.log || { cat stranger.1.log; fail "the refused one is not told why"; }
kill -0 $waiter 2> /dev/null || { cat stranger.0.log; fail "a refused token ended the others"; }
wait $waiter
[ $? -eq 1 ] || fail "one of two ranks trained, or ended with another code than 1"
grep -q "run.join_timeout_s.*1 of 2 ranks have not joined: 1; .*another token or job.* refused: .*from $address" \
    stranger.0.log || { cat stranger.0.log; fail "the refused token is not named to who waited"; }
echo "mistake: tokens that differ: $(grep -m1 refused stranger.0.log | cut -c1-240)"

# A rank that dies before it joins: the launcher says so, and the others need no other's patience to end.
cat > slow.lua <<'LUA'
local n, rank = 0, os.getenv("ORRERY_RANK")
local rounds = not rank and 0 or rank == os.getenv("VICTIM") and 2000000000 or 30000000
for i = 1, rounds do n = n + i end

LUA
cat "$source_root/scripts/gpt.lua" >> slow.lua
joining=60
tiny_exec=exec
unset ORRERY_TOKEN
early() {
    exec "$orrery" run slow.lua --set run.folder=early --set mesh.dp=2 --set data.path=text.txt \
        --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=4 --set script.layers=1 \
        --set script.embed=48 --set script.heads=3 --set run.join_timeout_s=$joining --set 'lua.allow=["os"]' \
        --set lua.instructions_million=8000
}
for victim in 1 2; do
    begin=$SECONDS rank=$((victim - 1))
    VICTIM=$rank early > early.log 2>&1 &
    launcher=$!
    wait_for two_ranks $launcher || { cat early.log; fail "no ranks"; }
    kill -9 "$(ranks_of $launcher | sed -n ${victim}p)"
    wait $launcher && fail "a killed rank is no error"
    grep -q "rank $rank (pid [0-9]*) was killed by signal 9 (Killed) before it joined" early.log ||
        { cat early.log; fail "the launcher does not say that rank $rank had not joined"; }
    # The other one reads why when it joins, and its log has that; one that takes too long is ended, and not blamed.
    grep -qE "\[rank $((1 - rank))\].*rank $rank \(pid [0-9]*\) was killed by signal 9.*before it joined|$(
        )rank $((1 - rank)) \(pid [0-9]*\) had not joined yet and is ended, too" early.log early/logs/* ||
        { cat early.log; fail "the survivor does not say why it ends"; }
    grep -q "did not end in time" early.log && { cat early.log; fail "the survivor is blamed"; }
    echo "rank $rank killed before it joined: all ended after $((SECONDS - begin)) s"
done
echo "1 passed, 0 failed"
