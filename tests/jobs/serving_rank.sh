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
        --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=6 --set run.timeout_s=20
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
echo "1 passed, 0 failed"
