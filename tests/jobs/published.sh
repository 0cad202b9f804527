#!/usr/bin/env bash
# Published folders from the command line: `check` says whether they fit, each rank of a mesh reads its own part, and
# what is spoilt is refused.
source "$(dirname "$0")/lib.sh"
hf=$source_root/scripts/hf.lua
folder=$source_root/tests/transformers
# 2,000 ids below 31, of 2 bytes each.
awk 'BEGIN { for (i = 0; i < 2000; ++i) printf "\\x%02x\\x00", (i * i + 3 * i) % 31 }' | xargs -0 printf > ids.bin

# model NAME FOLDER STEPS [more arguments]
model() {
    local name=$1 weights=$2 steps=$3
    shift 3
    $orrery run "$hf" --set run.folder="$name" --set checkpoint.load="$weights" --set data.path=ids.bin \
        --set data.token_bytes=2 --set data.vocab=31 --set data.tokens_per_sequence=12 --set data.validation=0.1 \
        --set train.sequences_per_step=4 --set train.steps="$steps" --set script.lr=1e-3 --set run.timeout_s=20 "$@"
}

for name in deepseek_v3 deepseek_v3_mtp gpt2 gpt2_bare gpt_oss gpt_oss_mxfp4 llama llama_old mistral mixtral \
    qwen2 qwen2_moe qwen3 qwen3_moe; do
    $orrery check "$hf" --set checkpoint.load="$folder/$name" --set data.path= --set data.tokens_per_sequence=12 \
        --set train.sequences_per_step=4 --set train.steps=3 > check.log 2>&1 || { cat check.log; fail "check $name"; }
done

# One rank, then meshes: the same losses but for rounding.
close() {
    paste one.txt "$1" | awk '{ d = $2 - $5; if (d < 0) d = -d } d > 1e-4 * $2 { bad = 1 } END { exit bad || NR != 3 }'
}
near() { close "$1" || { cat one.txt "$1"; fail "$2: other losses than one rank's"; }; }
for name in llama gpt2; do
    rm -rf one tp pp zero
    model one "$folder/$name" 3 > one.log 2>&1 || { cat one.log; fail "$name on one rank"; }
    losses one > one.txt
    model tp "$folder/$name" 3 --set mesh.tp=2 > tp.log 2>&1 || { cat tp.log; fail "$name, tp=2"; }
    losses tp > tp.txt && near tp.txt "$name, tp=2"
    model pp "$folder/$name" 3 --set mesh.pp=2 > pp.log 2>&1 || { cat pp.log; fail "$name, pp=2"; }
    losses pp > pp.txt && near pp.txt "$name, pp=2"
    model zero "$folder/$name" 3 --set mesh.dp=2 --set script.zero=3 > zero.log 2>&1 || { cat zero.log; fail "zero"; }
    losses zero > zero.txt && near zero.txt "$name, dp=2 with ZeRO-3"
done
# The losses are these weights': others in a file give another.
cp -r "$folder/gpt2" other && chmod -R u+w other
head -c 4000 /dev/zero | dd of=other/model.safetensors bs=1 seek=20000 conv=notrunc status=none
model zeros other 3 > zeros.log 2>&1 || { cat zeros.log; fail "a file with zeros"; }
losses zeros > zeros.txt
close zeros.txt && fail "zeros in the file change no loss"

# A resumed run goes on from its own checkpoint, on another mesh, not from the weights.
model kept "$folder/llama" 3 > kept.log 2>&1 || { cat kept.log; fail "three steps"; }
model kept "$folder/llama" 5 --set mesh.tp=2 > kept.log 2>&1 || { cat kept.log; fail "two steps more"; }
grep -q "resumed from step 3" kept.log || { cat kept.log; fail "it did not resume"; }

# The table has 128 rows for 38 words: none of the others is drawn, or taken for a word.
sampled() {
    $orrery sample "$hf" --set run.folder=kept --set checkpoint.load="$folder/llama" --set data.path=ids.bin \
        --set data.token_bytes=2 --set data.vocab=31 --set data.tokens_per_sequence=12 \
        --set train.sequences_per_step=4 --set train.steps=5 --set sample.tokens=300 --set sample.temperature=50 \
        --set sample.prompt="$1"
}
sampled "3 37" > sampled.log 2>&1 || { cat sampled.log; fail "sample"; }
tail -1 sampled.log | awk '{ for (i = 1; i <= NF; ++i) if ($i !~ /^[0-9]+$/ || $i > 37) bad = 1 }
    END { exit bad || NF != 302 }' || { cat sampled.log; fail "it drew what is no word"; }
sampled "3 38" > sampled.log 2>&1 && { cat sampled.log; fail "a prompt of what is no word was taken"; }
grep -q 'prompt: "38" is not a token id below 38' sampled.log || { cat sampled.log; fail "the prompt's refusal"; }

spoilt() { rm -rf bad && cp -r "$folder/llama" bad && chmod -R u+w bad; }
spoilt && rm bad/model-00002-of-00004.safetensors
refused 'bad/model-00002-of-00004.safetensors is missing|model.safetensors.index.json it has' model out bad 1
spoilt && cp bad/model-00001-of-00004.safetensors bad/model-00002-of-00004.safetensors
refused 'bad/model-00002-of-00004.safetensors: duplicate tensor "model.embed_tokens.weight", also in bad/model-00001' \
    model out bad 1
spoilt && truncate -s -10 bad/model-00003-of-00004.safetensors
refused 'bad/model-00003-of-00004.safetensors: tensor|copy or export it again' model out bad 1
spoilt && sed -i 's/"vocab_size": 38/"vocab_size": 40/' bad/config.json
refused 'tensor model.embed_tokens.weight is bf16[38,18], expected [40,18]' model out bad 1
spoilt && sed -i 's/"rope_type": "llama3"/"rope_type": "longrope"/' bad/config.json
refused 'bad/config.json: rope_parameters.rope_type = "longrope"' model out bad 1
rm -rf bad && cp -r "$folder/qwen2_moe" bad && chmod -R u+w bad
LC_ALL=C sed -i 's/experts\.3\.gate_proj/experts.7.gate_proj/' bad/model.safetensors
refused 'bad: no tensor "model.layers.1.mlp.experts.3.gate_proj.weight"|experts.gate.weight|needs 4|files have 3' \
    model out bad 1
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 14000\n' > pointer
spoilt && cp pointer bad/model-00001-of-00004.safetensors
refused 'bad/model-00001-of-00004.safetensors is a pointer of Git LFS|git lfs pull' model out bad 1
mkdir empty && cp "$folder/llama/config.json" empty && touch empty/pytorch_model.bin
refused 'empty has neither model.safetensors nor model.safetensors.index.json; it has pytorch_model.bin' \
    model out empty 1
echo "1 passed, 0 failed"
