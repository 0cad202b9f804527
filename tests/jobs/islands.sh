#!/usr/bin/env bash
# Islands: local SGD with a mean after every step is data parallelism; islands of several meshes train, evaluate, resume
# bit for bit after any step, and stop together.
source "$(dirname "$0")/lib.sh"
cat > islands.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { every = { 0, "" }, method = { "local_sgd", "" }, adamw = { false, "" }, zero = { 0, "" } }
local data = o.data.text {}
local program = o.trace("islands", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "tokens", { "vocab", data.vocab }, { "embed", 32 })
  for i = 0, 1 do
    nn.scope("layers." .. i, function() x = x + nn.mlp(nn.layernorm(x, "ln"), { mlp = 48 }) end)
  end
  return nn.linear(nn.layernorm(x, "ln_f"), "head", { "vocab", data.vocab }):cross_entropy(batch.targets)
end)
local optimizer = opt.adamw and o.optim.adamw { lr = 1e-2 } or o.optim.sgd { lr = 0.3, momentum = 0 }
local strategies = {
  o.strategy.pipeline { axis = "pp" }, o.strategy.tensor { axis = "tp" }, o.strategy.data { axis = "dp", zero = opt.zero },
}
if opt.every > 0 then
  o.methods[opt.method](program, { optimizer = optimizer, every = opt.every })
  table.insert(strategies, 1, o.strategy.islands { axis = "site" })
else
  program:train_with(optimizer)
  table.insert(strategies, 1, o.strategy.data { axis = "site" })
end
program:parallel(strategies)
local run = program:compile()
print(run:summary())
run:train(data)
LUA
settings=(--set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=12
    --set train.steps=6 --set data.validation=0.1 --set train.evaluate_every=3 --set train.evaluate_batches=2
    --set checkpoint.every_steps=1 --set run.timeout_s=20)
ran() { trained_in "$1" islands.lua "${settings[@]}" "${@:2}"; losses "$1" > "$1.txt"; }
same() { cmp -s "$1.txt" "$2.txt" || { paste "$1.txt" "$2.txt"; fail "$3"; }; }
numbers() { grep "\"$2\"" "$1/metrics.jsonl" | sed -E "s/.*\"$2\":([^,}]+).*/\1/"; }

# A mean after each step of SGD is data parallelism, on 2, 3 and 4 islands.
for count in 2 3 4; do
    long=(--set mesh.site=$count --set train.steps=20 --set train.evaluate_every=5)
    ran plain "${long[@]}"
    ran local "${long[@]}" --set script.every=1
    for pair in "loss round_loss" "eval_loss eval_loss"; do
        set -- $pair
        paste <(numbers plain "$1") <(numbers local "$2") | awk -v what="$pair" '
            { d = $1 - $2; if (d < 0) d = -d; if (d > 1e-6 * $1 || NF != 2) bad = bad "\n" NR " " $0 }
            END { if (NR < 4 || bad != "") { print what, NR, bad; exit 1 } }' || fail "$count islands: $pair"
    done
    rm -rf plain local
done

# Islands of each mesh train alike, and resume after any step bit for bit.
for case in "" "mesh.tp=2" "mesh.dp=2 script.zero=3" "mesh.pp=2 train.microbatches=2"; do
    arguments=(--set mesh.site=2 --set script.every=3 --set script.adamw=true)
    for setting in $case; do arguments+=(--set "$setting"); done
    ran whole "${arguments[@]}"
    [ "$(wc -l < whole.txt)" -eq 6 ] || { cat whole.txt; fail "six steps with $case"; }
    for steps in 1 3 4 6; do ran part --set train.steps=$steps "${arguments[@]}"; done
    same whole part "resumed with $case"
    rm -rf whole part
done
