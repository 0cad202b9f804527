#!/usr/bin/env bash
# Where rank 0 serves the rendezvous (torchrun, srun, mpirun), a job that succeeded ends with 0 on every rank, however
# late the others come to the end; and a script may train more than once.
source "$(dirname "$0")/lib.sh"
cat > twice.lua <<'LUA'
local o = require "orrery"
local gpt = require "orrery.models.gpt"
local data = o.data.file {}
local model = gpt { layers = 1, embed = 32, heads = 2, mlp = 64, vocab = data.vocab, seq = data.seq, dropout = 0 }
local program = o.trace("twice", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
program:train_with(o.optim.adamw { lr = 1e-3 })
program:parallel { o.strategy.data { axis = "dp" } }
local run = program:compile()
run:train(data, { steps = 3 })
run:train(data, { steps = 6 })
LUA
# rank FOLDER RANK PORT: one process of a job of two.
rank() {
    as_rank "$2" 2 "$3" "$orrery" run twice.lua --set run.folder="$1" --set mesh.dp=2 --set data.path=text.txt \
        --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set run.timeout_s=20
}
for round in 1 2 3 4 5; do
    port=$(free_port)
    rank job$round 0 "$port" > first.log 2>&1 &
    first=$!
    rank job$round 1 "$port" > second.log 2>&1
    second_code=$?
    wait $first
    first_code=$?
    [ "$first_code $second_code" = "0 0" ] ||
        { tail -n 5 first.log second.log; fail "round $round: exit codes $first_code and $second_code, expected 0 0"; }
    [ "$(losses job$round | cut -d' ' -f1 | tr '\n' ' ')" = "1 2 3 4 5 6 " ] ||
        { losses job$round; fail "round $round: not the six steps"; }
done
echo "five jobs of two trainings each: every rank ended with 0"

# A signal hurries the last words of a rank that fails before it meets the others, and changes no exit code.
port=$(free_port)
as_rank 0 2 "$port" "$orrery" run twice.lua --set run.folder=three --set mesh.dp=3 --set data.path=text.txt \
    > three.log 2>&1 &
rank=$!
wait_for grep -q "mesh dp=3" three.log || { cat three.log; fail "no word of the mesh"; }
kill -TERM "$(ranks_of $rank)"
wait $rank
code=$?
[ $code -eq 2 ] || { cat three.log; fail "a wrong mesh, and SIGTERM: exit code $code, expected 2"; }

# One that has not met the others yet tells them why: it cannot open what a rank needs.
port=$(free_port)
joining="--set run.join_timeout_s=60"
begin=$SECONDS
as_rank 0 2 "$port" "$orrery" run twice.lua --set run.folder=few --set mesh.dp=2 --set data.path=text.txt \
    --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 $joining > first.log 2>&1 &
first=$!
(ulimit -n 50 && as_rank 1 2 "$port" "$orrery" run twice.lua --set run.folder=few --set mesh.dp=2 \
    --set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 $joining) \
    > second.log 2>&1 && fail "a rank with 50 descriptors trained"
wait $first && fail "one of two ranks trained"
grep -q "orrery: \[rank 1\] .*files and sockets" second.log ||
    { cat second.log; fail "rank 1 does not say what it lacks"; }
grep -q "rank 1 (pid .* failed: .*files and sockets" first.log || { cat first.log; fail "rank 0 is not told why"; }
[ $((SECONDS - begin)) -lt 30 ] || fail "rank 0 waited $((SECONDS - begin)) s"
echo "a rank that cannot meet the others: all ended after $((SECONDS - begin)) s"

# What goes wrong between two trainings, on the rank that serves and on the other.
sed 's/^run:train(data, { steps = 6 })/if os.getenv("RANK") == os.getenv("BAD") then error("no second time") end\n&/' \
    twice.lua > between.lua
for bad in 0 1; do
    port=$(free_port)
    export BAD=$bad
    begin=$SECONDS
    for rank in 0 1; do
        as_rank $rank 2 "$port" "$orrery" run between.lua --set run.folder=between$bad --set mesh.dp=2 \
            --set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 \
            --set 'lua.allow=["os"]' $joining > between.$rank.log 2>&1 &
        pids[rank]=$!
    done
    for rank in 0 1; do wait "${pids[rank]}" && fail "between, rank $bad bad: rank $rank succeeded"; done
    grep -q "\[rank $bad\] .*no second time" between.$bad.log || { cat between.$bad.log; fail "rank $bad is silent"; }
    grep -q "rank $bad (pid .*no second time" between.$((1 - bad)).log ||
        { cat between.?.log; fail "the other rank is not told what went wrong on rank $bad"; }
    [ $((SECONDS - begin)) -lt 30 ] || fail "between, rank $bad bad: $((SECONDS - begin)) s"
done
echo "an error between two trainings is told, of either rank"
echo "1 passed, 0 failed"
