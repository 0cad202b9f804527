#!/usr/bin/env bash
# A network that mixes positions by rolling the sequence. Where an axis splits the sequence, a roll by whole blocks
# is a message between neighbours and any other gathers the dim: both verify and train with the losses of one rank.
source "$(dirname "$0")/lib.sh"

cat > rolls.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local strategy = require "orrery.strategy"
local data = o.data.text {}
local split = strategy.define("split", { axis = "cp" }, function(program, mesh, options)
  for x in program:inputs() do
    for _, dim in ipairs(x.dims) do
      if dim == "seq" then x:store { [options.axis] = strategy.S "seq" } end
    end
  end
end)

-- Sequences of 24: a roll by 12 moves whole blocks of 2 ranks, by -8 of 3.
local program = o.trace("rolls", data.signature, function(batch)
  local table = nn.param { name = "table", shape = { { "vocab", data.vocab }, { "embed", 16 } },
                           init = { kind = "normal", scale = 0.1 } }
  local x = batch.tokens:embedding(table)
  for i, by in ipairs { 12, -8 } do
    local h = nn.linear(x, "mix" .. i, { "embed", 16 })
    x = x + (h * h:roll { dim = "seq", by = by }):tanh():roll("seq", 2 * by)
  end
  return x:matmul(table, { trans_b = true }):cross_entropy(batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-2 })
program:parallel { split { axis = "cp" } }
program:compile():train(data)
LUA
settings=(--set data.path=text.txt --set data.tokens_per_sequence=24 --set train.sequences_per_step=4
    --set train.steps=4 --set run.timeout_s=20)

for cp in 2 3; do
    $orrery verify rolls.lua "${settings[@]}" --set mesh.cp=$cp --set train.microbatches=2 > verify.log 2>&1 ||
        { cat verify.log; fail "on $cp ranks a roll does not pass"; }
    grep -q "PASS: " verify.log || { cat verify.log; fail "no PASS on $cp ranks"; }
    $orrery check rolls.lua "${settings[@]}" --set mesh.cp=$cp > check.log 2>&1 || { cat check.log; fail "check"; }
    grep -q "x  roll over cp: .*, the script rolls a dim that is split" check.log ||
        { cat check.log; fail "check lists no roll over cp"; }
done
$orrery draw rolls.lua "${settings[@]}" --set mesh.cp=3 > draw.log 2>&1 || { cat draw.log; fail "draw"; }
grep -q "each member of axis cp sends to member +[12]," draw.log || { cat draw.log; fail "draw shows no messages"; }

trained() {  # trained NAME [more settings]
    trained_in "$1" rolls.lua "${settings[@]}" "${@:2}"
    losses "$1" | cut -d' ' -f2 > "$1.losses"
}
trained one
[ "$(wc -l < one.losses)" -eq 4 ] || fail "not 4 steps"
for run in "2 threads" "3 shm" "2 gloo"; do
    read -r cp transport <<< "$run"
    trained "$transport" --set mesh.cp="$cp" --set run.transport="$transport"
    paste one.losses "$transport.losses" | awk '{ d = $1 - $2; if (d * d > 1e-10 * $1 * $1) exit 1 }' ||
        { paste one.losses "$transport.losses"; fail "$cp ranks over $transport do not train as one rank does"; }
done
echo "1 passed, 0 failed"
