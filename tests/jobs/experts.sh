#!/usr/bin/env bash
# A mixture of experts in which a part of the choices finds no slot. It trains and verifies on one rank and under dp, tp
# and ZeRO, with the same losses.
source "$(dirname "$0")/lib.sh"

cat > experts.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { zero = { 0, "stage of ZeRO" } }
local data = o.data.text {}
local program = o.trace("experts", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "tokens", { "vocab", data.vocab }, { "embed", 24 })
  x = x + nn.scope("attn", nn.attention, nn.layernorm(x, "ln_1"), { heads = 2 })
  x = x + nn.scope("mlp", nn.moe, nn.layernorm(x, "ln_2"), { experts = 4, top_k = 2, mlp = 32, std = 0.1, parts = 2 })
  return nn.linear(nn.layernorm(x, "ln_f"), "head", { "vocab", data.vocab }):cross_entropy(batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-2, decay = 0 })
program:parallel { o.strategy.tensor { axis = "tp" }, o.strategy.data { axis = "dp", zero = opt.zero } }
program:compile():train(data)
LUA

settings=(--set data.path=text.txt --set data.tokens_per_sequence=32 --set data.validation=0.1
    --set train.sequences_per_step=4 --set train.steps=24 --set train.evaluate_every=24 --set train.evaluate_batches=2
    --set run.timeout_s=20)
trained() {  # trained NAME [more settings]
    trained_in "$1" experts.lua "${settings[@]}" "${@:2}"
    losses "$1" | cut -d' ' -f2 > "$1.losses"
}
verified() {
    $orrery verify experts.lua "${settings[@]}" "$@" > verify.log 2>&1 ||
        { tail -20 verify.log; fail "verify finds a fault under $*"; }
}
trained one
awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 24 && last < first * 0.8) }' one.losses ||
    { cat one.losses; fail "it learns nothing"; }
trained again
cmp -s one.losses again.losses || fail "the same run twice has other losses"
while read -r name sets; do
    # shellcheck disable=SC2086
    set -- $sets
    trained "$name" "$@"
    paste one.losses "$name.losses" | awk '{ d = $1 - $2; if (d * d > 1e-6 * (1 + $1 * $1)) exit 1 }' ||
        { paste one.losses "$name.losses"; fail "$name does not train as one rank does"; }
    verified "$@"
done << 'END'
dp --set mesh.dp=2
tp --set mesh.tp=2
micro --set mesh.dp=2 --set train.microbatches=2
zero --set mesh.dp=2 --set script.zero=3
END
verified --set mesh.dp=2 --set train.precision=bf16
echo "1 passed, 0 failed"
