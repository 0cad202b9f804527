#!/usr/bin/env bash
# Mixtures of experts for clusters: compiled and proved here within 2 GiB of address space and 10 s of processor time,
# starting nothing. Slabs move by the bytes of the closed form, and no gather is implicit.
source "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || { echo "skipped: python3, which measures, is not here"; exit 77; }

cat > deep.lua << 'LUA'
-- DeepSeek-V3: latent attention, 3 dense layers, 58 with 256 experts in 8 groups, 8 of them a token, and a shared one.
local o = require "orrery"
local data = o.data.text {}
local model = require "orrery.models.llama" {
  layers = 61, embed = 7168, heads = 128, mlp = 18432, vocab = data.vocab, eps = 1e-6, q_rank = 1536, kv_rank = 512,
  nope_dim = 128, rope_dim = 64, v_dim = 128, dense = 3, experts = 256, top_k = 8, expert_mlp = 2048, shared = 2048,
  scores = "sigmoid", groups = 8, top_groups = 4, scale = 2.5, correction = true, balance = { rate = 0.001 },
}
local program = o.trace("deep", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
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
    (ulimit -v 2097152; processor_s=10 peak_below 2000 $orrery check "$1" $(printf -- '--set %s ' "${@:2}") \
        --set train.steps=2 --set data.tokens_per_sequence=4096 --set 'train.precision="bf16"' --set run.device=cpu \
        --set run.transport=gloo) || fail "check of $file"
    mv peak.log "$file"
    says "$file" "the plan is complete and free of deadlock"
    ! grep -q IMPLICIT "$file" || { grep -A1 IMPLICIT "$file"; fail "$file has implicit gathers"; }
}
says() { grep -qF -- "$2" "$1" || { head -20 "$1"; fail "no \"$2\" in $1"; }; }

# A slab has 256 experts x 160 slots x 7168 values in bf16; of it 4 x 63/64 are sent, and the loads, 4 bytes an expert,
# in 4 layers and 64 micro-batches of a rank.
checked deepseek.txt deep.lua mesh.pp=16 mesh.dp=2 mesh.ep=64 train.sequences_per_step=8192 train.microbatches=64 \
    data.vocab=129280
says deepseek.txt "671,026,404,352 parameters"
says deepseek.txt "all_to_all over ep: 1,280 a step, 551.3 GiB sent"

# Mixtral 8x22B, experts over dp: 8 groups of 8 experts x 320 slots x 6144 values in bf16, of which 4 x 7/8 are sent, in
# 14 layers and 8 micro-batches.
checked mixtral.txt "$source_root/scripts/gpt.lua" mesh.pp=4 mesh.dp=8 mesh.cp=4 mesh.tp=4 data.vocab=32768 \
    train.sequences_per_step=512 train.microbatches=8 script.model=mixtral script.layers=56 script.embed=6144 \
    script.heads=48 script.kv_heads=8 script.mlp=16384 script.experts=8 script.top_k=2 script.parts=4 script.zero=1 \
    script.expert_axes=dp script.context=gather
says mixtral.txt "all_to_all over dp: 560 a step, 91.9 GiB sent"
echo "1 passed, 0 failed"
