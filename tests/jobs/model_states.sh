#!/usr/bin/env bash
# o.state: what a model keeps from step to step is the same on one rank and on meshes, is saved and resumed bit for bit,
# is left as it was by a step that is skipped, and evaluation reads it without changing it.
source "$(dirname "$0")/lib.sh"
cat > kept.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { zero = { 0, "stage" }, recompute = { false, "" }, scale = { 0.0, "" } }
local data = o.data.text {}
local count = o.config.train.sequences_per_step * 16                       -- tokens of a step
local program = o.trace("kept", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "tokens", { "vocab", data.vocab }, { "embed", 32 })
  for i = 0, 1 do
    nn.scope("layers." .. i, function()
      local mean = o.state { name = "mean", shape = { { "embed", 32 } } }
      local calls = o.state { name = "calls", shape = {}, initial = 1 }
      local h = nn.layernorm(x - mean, "ln")
      mean:next(0.75 * mean + x:cast "f32":sum { "batch", "seq" } * (0.25 / count))
      calls:next(calls * 2)
      x = x + nn.mlp(h, { mlp = 48 }) * calls
    end)
  end
  local logits = nn.linear(nn.layernorm(x, "ln_f"), "head", { "vocab", data.vocab })
  local norm = o.state { name = "last_loss", shape = {}, initial = 3 }       -- read by no layer
  local loss, n = logits:cross_entropy(batch.targets)
  norm:next(loss / count)
  o.result("last", norm * 1, 1)
  return loss, n
end)
local scale = opt.scale > 0 and { initial = opt.scale, most = opt.scale } or nil
program:train_with(o.optim.adamw { lr = 1e-3 }, { loss_scale = scale })
local strategies = {
  o.strategy.pipeline { axis = "pp" }, o.strategy.tensor { axis = "tp" },
  o.strategy.data { axis = "dp", zero = opt.zero },
}
if opt.recompute then table.insert(strategies, 1, o.strategy.recompute {}) end
program:parallel(strategies)
program:compile():train(data)
LUA
settings=(--set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=8
    --set train.steps=6 --set data.validation=0.1 --set train.evaluate_every=3 --set train.evaluate_batches=2
    --set checkpoint.every_steps=3 --set run.timeout_s=20)
kept() { trained_in "$1" kept.lua "${settings[@]}" "${@:2}"; losses "$1" > "$1.txt"; }
number() { sed -E "s/.*\"$1\":([^,}]+).*/\1/"; }
kept one
[ "$(wc -l < one.txt)" -eq 6 ] || { cat one.txt; fail "six steps"; }
# Each step reads the loss of the step before it.
grep '"loss"' one/metrics.jsonl | number last > last.txt
paste <(echo 3; cut -d' ' -f2 one.txt | head -5) last.txt |
    awk '{ d = $1 - $2; if (d * d > 1e-10) exit 1 }' || { cat last.txt one.txt; fail "the loss of the step before"; }
# An evaluation reads what the last step left, and the steps after it are as without it.
grep eval_ one/metrics.jsonl | number eval_last > evaluated.txt
paste evaluated.txt <(awk 'NR % 3 == 0 { print $2 }' one.txt) |
    awk '{ d = $1 - $2; if (d * d > 1e-10) exit 1 } END { exit NR != 2 }' ||
    { cat evaluated.txt one.txt; fail "an evaluation reads another state"; }
kept alone --set train.evaluate_every=100
cmp -s one.txt alone.txt || { paste one.txt alone.txt; fail "an evaluation changes a state"; }

# The same on meshes, also verified; a run that is saved after three steps resumes bit for bit.
for case in "mesh.tp=2 train.microbatches=2" "mesh.pp=2 train.microbatches=4" \
    "mesh.dp=2 script.zero=3 script.recompute=true train.microbatches=2"; do
    arguments=()
    for setting in $case; do arguments+=(--set "$setting"); done
    kept meshed "${arguments[@]}"
    paste one.txt meshed.txt | awk '{ d = $2 - $5; if (d < 0) d = -d; if (NF != 6 || d > 1e-5 * $2) exit 1 }' ||
        { paste one.txt meshed.txt; fail "other losses with $case"; }
    exits 0 verify $orrery verify kept.lua "${settings[@]}" --steps 2 "${arguments[@]}"
    if [[ $case != *tp=2* ]]; then
        kept part "${arguments[@]}" --set train.steps=3
        kept part "${arguments[@]}"
        cmp -s meshed.txt part.txt || { paste meshed.txt part.txt; fail "resumed with $case"; }
    fi
    rm -rf part meshed
done
# What a pipeline saved is resumed on one rank.
kept moved --set train.steps=3 --set mesh.pp=2 --set train.microbatches=4
kept moved
paste one.txt moved.txt | awk '{ d = $2 - $5; if (d < 0) d = -d; if (NF != 6 || d > 1e-5 * $2) exit 1 }' ||
    { paste one.txt moved.txt; fail "from pp to one rank"; }

# A step that overflows changes nothing: `calls` doubles with each update, not with each step.
kept half --set train.precision=f16 --set script.scale=65536 --set train.evaluate_every=100 --set train.steps=8
skipped=$(grep -c '"grad_norm":null' half/metrics.jsonl)
[ "$skipped" -ge 2 ] && [ "$skipped" -lt 7 ] || { cat half/metrics.jsonl; fail "$skipped steps are skipped"; }
grep '"loss"' half/metrics.jsonl | sed -E 's/.*"grad_norm":([^,]+).*"last":([^,}]+).*/\1 \2/' |
    awk '{ if (before == "null" && $2 != last) exit 1; if (before != "" && before != "null" && $2 == last) exit 1
           before = $1; last = $2 }' || { cat half/metrics.jsonl; fail "a skipped step changes a state"; }
echo "1 passed, 0 failed"
