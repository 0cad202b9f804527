#!/usr/bin/env bash
# A mixture of experts made of ops by index: each sequence sends its tokens to the two experts of the largest gates, as
# many as an expert has room for. It trains and verifies on one rank and under dp, tp and ZeRO, with the same losses.
source "$(dirname "$0")/lib.sh"

cat > experts.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { zero = { 0, "stage of ZeRO" } }
local data = o.data.text {}
local experts, chosen, room = 4, 2, 20     -- room: of the 64 choices that the 32 tokens of a sequence make

local function mixture(x)                  -- x [batch, seq, embed]
  local batch, seq, embed = table.unpack(x.shape)
  local choices = seq * chosen
  local gates, ids = nn.linear(x, "gate", { "experts", experts }, { bias = false }):softmax():top_k(chosen)
  ids = ids:reshape { "batch", { "choices", choices }, 1 }
  gates = gates:reshape { "batch", { "choices", choices }, 1 }
  -- How many choices of a sequence went to the same expert before; what finds no room goes nowhere.
  local hot = ids:reshape { "batch", "choices" }:one_hot(experts)
  local place = hot:cumsum("choices", { exclusive = true }):gather(ids, 3)
  local slot = place:less(room):select(ids:cast "f32" * room + place, o.constant(-1)):cast "i32"
  local token = o.iota { shape = { { "batch", batch }, { "seq", seq }, chosen }, dim = "seq" }
  token = token:reshape { "batch", { "choices", choices }, 1 }
  local h = x:gather(token, 2):scatter_add(slot, 2, experts * room)
  h = h:reshape { "batch", { "expert", experts }, { "room", room }, "embed" }:transpose { 2, 1, 3, 4 }
  h = h:reshape { "expert", { "rows", batch * room }, "embed" }
  local init = { kind = "normal", scale = 0.1 }
  local function weight(name, from, to)
    return nn.param { name = name, shape = { { "expert", experts }, from, to }, init = init }
  end
  h = h:matmul(weight("up", { "embed", embed }, { "mlp", 32 })):gelu()
  h = h:matmul(weight("down", { "mlp", 32 }, { "embed", embed }))
  h = h:reshape { "expert", { "batch", batch }, { "room", room }, "embed" }:transpose { 2, 1, 3, 4 }
  h = h:reshape { "batch", { "slots", experts * room }, "embed" }:gather(slot, 2) * gates
  return h:reshape { "batch", { "seq", seq }, { "chosen", chosen }, "embed" }:sum { dims = { 3 } }
end

local program = o.trace("experts", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "tokens", { "vocab", data.vocab }, { "embed", 24 })
  x = x + nn.scope("attn", nn.attention, nn.layernorm(x, "ln_1"), { heads = 2 })
  x = x + nn.scope("mixture", mixture, nn.layernorm(x, "ln_2"))
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
