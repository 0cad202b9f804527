#!/usr/bin/env bash
# Gradients that are not finite, while the loss is: the run ends at that step, names the first such param whatever the
# mesh, and no checkpoint holds the update. f16 whose every step is skipped at the least loss scale ends, too.
source "$(dirname "$0")/lib.sh"
cat > hole.lua << 'LUA'
local o = require "orrery"
local opt = o.options { at = { 3, "step" }, how = { "nan", "nan or huge" }, own = { "adamw", "adamw, sgd or lion" },
                        zero = { 0, "stage" } }
local data = o.data.text {}
local model = require "orrery.models.gpt" { layers = 2, embed = 32, heads = 4, mlp = 48, vocab = data.vocab, seq = 16 }
local program = o.trace("gpt", data.signature, function(batch)
  local loss, count = model:loss(batch.tokens, batch.targets)
  local hole = o.param { name = "hole", shape = { { "holes", 8 } } }            -- zeros
  local last = o.param { name = "last", shape = { { "holes", 8 } } }
  local before = (opt.at - o.step()):maximum(0)                                 -- 0 from step `at` on
  if opt.how == "huge" then
    loss = loss + ((hole + last) * (1 - before:minimum(1)) * 1e30):sum()        -- finite, its square is not
  else
    loss = loss + (hole:square():sum() + before):sqrt() - before:sqrt()         -- 0 / 0 in the gradient of the root
                + (last:square():sum() + before):sqrt() - before:sqrt()
  end
  return loss, count
end)
local function lion(update)
  for p in update:params() do
    local g, m = p:grad() / 64, update:state(p, "m")
    local s = m * 0.9 + g * 0.1
    update:set(p, p - (s:greater(0):cast "f32" - s:less(0):cast "f32") * 1e-3)
    update:set(m, m * 0.99 + g * 0.01)
  end
end
program:train_with(({ adamw = o.optim.adamw { lr = 1e-3 }, sgd = o.optim.sgd { lr = 1e-3 }, lion = lion })[opt.own])
program:parallel { o.strategy.pipeline { axis = "pp" }, o.strategy.tensor { axis = "tp" },
                   o.strategy.data { axis = "dp", zero = opt.zero } }
program:compile():train(data)
LUA
# ends NAME WORDS ARGUMENTS...: exit code 1, and the words (separated by |).
ends() {
    local name=$1 words=$2 missing
    shift 2
    exits 1 "$name" $orrery run hole.lua --set data.path=text.txt --set data.tokens_per_sequence=16 \
        --set run.folder="$name" --set train.sequences_per_step=4 --set train.steps=90 --set checkpoint.every_steps=1 \
        --set checkpoint.async=false --set run.timeout_s=20 "$@"
    missing=$(missing_word "$words" "$(cat "$name.txt" "$name.err")")
    [ -z "$missing" ] || { cat "$name.txt" "$name.err"; fail "$name: the message lacks \"$missing\""; }
}
last_step() { ls "$1/checkpoints" | grep -E '^step-[0-9]+$' | tail -1 | sed 's/step-0*//'; }

nan="step 3: the norm of the gradients is |the first param whose gradient is not finite is hole ("
ends plain "$nan|the update is not made|the checkpoint of step 2 is marked" --set train.precision=f32
[ "$(last_step plain)" = 2 ] || fail "a checkpoint of the step that was not made"
ends bf16 "$nan" --set train.precision=bf16 --set mesh.dp=2 --set script.zero=1
ends sgd "$nan" --set script.own=sgd --set mesh.dp=2 --set script.zero=3
ends lion "$nan|the update is not made" --set script.own=lion --set mesh.pp=2 --set train.microbatches=2
ends huge "step 3: the norm of the gradients is inf: all gradients are finite, the sum of their squares is not" \
    --set script.how=huge --set mesh.tp=2
skips="no update in 4 steps in a row (train.max_skips)|at the min loss scale, 6.1|is hole ("
ends skips "$skips" --set train.precision=f16 --set train.max_skips=4 --set mesh.dp=2
ends own "$skips" --set train.precision=f16 --set train.max_skips=4 --set script.own=lion
echo "7 passed, 0 failed"
