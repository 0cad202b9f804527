#!/usr/bin/env bash
# Mixtures of experts for clusters: compiled and proved here within 2 GiB of address space, starting nothing. Slabs move
# by the bytes of the closed form, and no gather is implicit.
source "$(dirname "$0")/lib.sh"

cat > deep.lua << 'LUA'
-- DeepSeek-V3's shapes: 3 dense layers, 58 with 256 experts in 8 groups, 8 of them a token, and a shared one.
local o, nn = require "orrery", require "orrery.nn"
local data = o.data.text {}
local program = o.trace("deep", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "tokens", { "vocab", data.vocab }, { "embed", 7168 })
  for i = 1, 61 do
    nn.scope("layers." .. i, function()
      x = x + nn.scope("attn", nn.attention, nn.rmsnorm(x, "ln_1"), { heads = 128, rope = 10000.0, bias = false })
      local h = nn.rmsnorm(x, "ln_2")
      if i <= 3 then
        x = x + nn.scope("mlp", nn.swiglu, h, { mlp = 18432 })
      else
        x = x + nn.scope("mlp", nn.moe, h, { experts = 256, top_k = 8, mlp = 2048, shared = 2048, scores = "sigmoid",
          groups = 8, top_groups = 4, renormalise = true, scale = 2.5 })
      end
    end)
  end
  return nn.linear(nn.rmsnorm(x, "ln_f"), "head", { "vocab", data.vocab }):cross_entropy(batch.targets)
end)
program:train_with(o.optim.adamw {})
program:parallel {
  o.strategy.pipeline { axis = "pp", schedule = "1f1b" },
  o.strategy.expert {},
  o.strategy.data { axis = { "dp", "ep" }, zero = 1 },
}
program:compile():train(data)
LUA
# checked FILE SCRIPT SETTINGS...: `orrery check` of the script into FILE.
checked() {
    local file=$1
    shift
    # shellcheck disable=SC2046
    (ulimit -v 2097152; exec $orrery check "$1" $(printf -- '--set %s ' "${@:2}") --set train.steps=2 \
        --set data.tokens_per_sequence=4096 --set 'train.precision="bf16"' --set run.device=cpu \
        --set run.transport=gloo) > "$file" 2>&1 || { tail -5 "$file"; fail "check of $file"; }
    says "$file" "the plan is complete and free of deadlock"
    ! grep -q IMPLICIT "$file" || { grep -A1 IMPLICIT "$file"; fail "$file has implicit gathers"; }
}
says() { grep -qF -- "$2" "$1" || { head -20 "$1"; fail "no \"$2\" in $1"; }; }

# A slab has 256 experts x 160 slots x 7168 values in bf16; of it 4 x 63/64 are sent, and the loads, 4 bytes an expert,
# in 4 layers and 64 micro-batches of a rank.
checked deepseek.txt deep.lua mesh.pp=16 mesh.dp=2 mesh.ep=64 train.sequences_per_step=8192 train.microbatches=64 \
    data.vocab=129280
says deepseek.txt "672,149,761,280 parameters"
says deepseek.txt "all_to_all over ep: 1,280 a step, 551.3 GiB sent"

# Mixtral 8x22B, experts over dp: 8 groups of 8 experts x 320 slots x 6144 values in bf16, of which 4 x 7/8 are sent, in
# 14 layers and 8 micro-batches.
checked mixtral.txt "$source_root/scripts/gpt.lua" mesh.pp=4 mesh.dp=8 mesh.cp=4 mesh.tp=4 data.vocab=32768 \
    train.sequences_per_step=512 train.microbatches=8 script.model=mixtral script.layers=56 script.embed=6144 \
    script.heads=48 script.kv_heads=8 script.mlp=16384 script.experts=8 script.top_k=2 script.parts=4 script.zero=1 \
    script.expert_axes=dp script.context=gather
says mixtral.txt "all_to_all over dp: 560 a step, 91.9 GiB sent"
echo "1 passed, 0 failed"
