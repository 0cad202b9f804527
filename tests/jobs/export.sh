#!/usr/bin/env bash
# `orrery export`: what was imported comes out bit for bit, from any mesh; models made here as their architectures;
# older checkpoints by the kept script; what cannot be done is refused, and leaves nothing.
source "$(dirname "$0")/lib.sh"
fixtures=$source_root/tests/transformers
look="python3 $source_root/tests/jobs/published_folders.py"
awk 'BEGIN { for (i = 0; i < 2000; ++i) printf "\\x%02x\\x00", (i * i + 3 * i) % 31 }' | xargs -0 printf > ids.bin

# imported NAME FIXTURE [more arguments]: one step at a rate of 0 changes no weight.
imported() {
    local name=$1 fixture=$2
    shift 2
    $orrery run "$source_root/scripts/hf.lua" --set run.folder="$name" --set checkpoint.load="$fixture" \
        --set data.path=ids.bin --set data.token_bytes=2 --set data.vocab=31 --set data.tokens_per_sequence=12 \
        --set data.validation=0.1 --set train.sequences_per_step=4 --set train.steps=1 --set script.lr=0 \
        --set run.timeout_s=60 "$@" > run.log 2>&1 || { cat run.log; fail "the run of $fixture"; }
}
# exported RUN FOLDER [more arguments]
exported() { exits 0 exported "$orrery" export "$@"; }
same() { $look same "$1" "$2" > same.txt 2>&1 || { cat same.txt; fail "$3"; }; }

imported eight "$fixtures/llama" --set mesh.dp=2 --set mesh.tp=2 --set mesh.pp=2 --set train.microbatches=2 \
    --set script.zero=1
exported eight whole
grep -q "whole: exported llama of step 1, 21 tensors in 1 file, 18.7 KiB of bf16" exported.txt ||
    fail "$(cat exported.txt)"
same whole "$fixtures/llama" "dp=2 tp=2 pp=2: the export is not what was imported"
grep -q rounded exported.txt && fail "values of bf16 are reported as rounded: $(cat exported.txt)"
exported eight cut/ --shard-gb 0.000007 --step 1
same cut "$fixtures/llama" "several files: the export is not what was imported"
[ "$(ls cut)" = "$(ls "$fixtures/llama" | sed 's/expected.safetensors/generation_config.json/')" ] ||
    fail "files: $(ls cut)"
$look keys whole config.json 'torch_dtype="bfloat16"' 'dtype="bfloat16"' rope_theta=100.0 vocab_size=38 \
    'rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 64, "rope_type": "llama3"}' \
    'rope_parameters={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                      "original_max_position_embeddings": 64, "rope_theta": 100.0, "rope_type": "llama3"}' \
    'architectures=["LlamaForCausalLM"]' pad_token_id=null || fail "config.json"
# What was exported is imported again: both spellings agree.
imported again whole
exported again twice
same twice whole "an export of an export"

for name in gpt2 gpt_oss llama_old mistral qwen2 qwen2_moe qwen3 qwen3_moe; do
    imported "run_$name" "$fixtures/$name"
    exported "run_$name" "$name"
    same "$name" "$fixtures/$name" "$name: the export is not what was imported"
done
$look keys llama_old config.json rope_theta=500.0 'rope_scaling={"factor": 2.5, "type": "linear"}' \
    'rope_parameters={"factor": 2.5, "rope_theta": 500.0, "rope_type": "linear"}' || fail "the old spelling"
# Experts split over ranks come out as a tensor of each.
imported mixed_run "$fixtures/mixtral" --set mesh.dp=2 --set mesh.tp=2 --set script.zero=3
exported mixed_run mixed
same mixed "$fixtures/mixtral" "mixtral of dp=2 tp=2 with ZeRO-3"
# What was decoded comes out in bf16, and is read again.
for name in deepseek_v3 gpt_oss_mxfp4; do
    imported "run_$name" "$fixtures/$name"
    exported "run_$name" "$name" --dtype bf16
    imported "again_$name" "$name"
    exported "again_$name" "twice_$name"
    same "twice_$name" "$name" "$name, decoded, and read again"
done
# The module of multi-token prediction comes out with its copies of the table and the head, from any mesh.
imported mtp_run "$fixtures/deepseek_v3_mtp" --set script.mtp_weight=0.3 --set mesh.dp=2 --set mesh.pp=2 \
    --set train.microbatches=2 --set script.zero=1
exported mtp_run mtp --dtype bf16
imported again_mtp mtp --set script.mtp_weight=0.3
exported again_mtp twice_mtp
same twice_mtp mtp "multi-token prediction, read again"
$look types mtp BF16 73 && $look keys mtp config.json num_nextn_predict_layers=1 || fail "multi-token prediction"
imported without_mtp mtp
exported without_mtp without
$look types without BF16 41 && $look keys without config.json num_nextn_predict_layers=0 || fail "the module left out"
$look keys deepseek_v3 config.json num_nextn_predict_layers=0 n_group=4 ||
    fail "config.json of deepseek_v3"
grep -q quantization_config deepseek_v3/config.json && fail "an export in bf16 says that it is quantised"
# A dense model's block is every expert, and the mixture that comes out is one that is read.
imported upcycled_run "$fixtures/mistral" --set script.experts=3
grep -q "has no tensor for layers.0.mlp.gate.weight, layers.1.mlp.gate.weight: initialized" run.log ||
    { cat run.log; fail "the routers are not named"; }
exported upcycled_run upcycled
$look keys upcycled config.json 'model_type="mixtral"' num_local_experts=3 num_experts_per_tok=2 sliding_window=5 ||
    fail "config.json of a mixture made of a dense model"
imported upcycled_again upcycled
exported upcycled_again upcycled_twice
same upcycled_twice upcycled "a mixture made of a dense model, read again"
# Trained as two islands, it scores a text as its export does, for windows of one size and weights of one type.
imported mixture "$fixtures/llama" --set script.experts=3 --set script.lr=0.05 --set script.warmup=1 \
    --set train.steps=10 --set mesh.site=2 --set script.method=local_sgd --set script.sync_every=5 \
    --set run.transport=threads
exported mixture mixture.bf16
grep -q "f32 params are rounded to .*, the type in config.json; --dtype f32 keeps them" exported.txt ||
    fail "$(cat exported.txt)"
exported mixture mixture.f32 --dtype f32
for place in mixture mixture.f32; do
    exits 0 scored $orrery evaluate $place ids.bin --window 12 --set data.token_bytes=2 --set data.vocab=31
    sed -nE 's/^perplexity +//p' scored.txt
done | paste - - | tee perplexities.txt | awk '{ d = $1 - $2; if (NF != 2 || d > 1e-5 * $1 || -d > 1e-5 * $1) exit 1 }
    END { if (NR != 1) exit 1 }' || fail "a mixture of islands and its export: $(cat perplexities.txt)"
imported bare_run "$fixtures/gpt2_bare"
exported bare_run bare --dtype bf16
$look types bare BF16 28 && $look keys bare config.json 'architectures=["GPT2LMHeadModel"]' 'dtype="bfloat16"' ||
    fail "a model that was published without its head"

# Where config.json says no type, the files do.
cp -r "$fixtures/qwen2" untold && chmod -R u+w untold
sed -i '/"dtype"/d' untold/config.json
imported untold_run untold
exported untold_run told
same told "$fixtures/qwen2" "a config.json without a dtype"
$look keys told config.json 'torch_dtype="float16"' 'dtype="float16"' || fail "the type of the files"

# A tokenizer that lies in the run's folder goes along.
mkdir run_qwen3/tokenizer && echo '{"model": {}}' > run_qwen3/tokenizer/tokenizer.json
exported run_qwen3 spoken
cmp -s spoken/tokenizer.json run_qwen3/tokenizer/tokenizer.json || fail "the tokenizer"

# Models made here. A checkpoint from before there was `published` has the kept script.
run_tiny made 4 --set script.model=llama --set script.qk_norm=true --set script.tied=yes \
    --set checkpoint.every_steps=2 > run.log 2>&1 || { cat run.log; fail "a Llama with qk_norm"; }
exported made made_here --step 2
$look types made_here F32 24 && $look keys made_here config.json 'model_type="qwen3"' eos_token_id=null head_dim=16 \
    max_position_embeddings=32 vocab_size=256 tie_word_embeddings=true attention_bias=false use_sliding_window=false ||
    fail "a Llama with qk_norm is a qwen3"
cp -r made old && rm old/published.json
python3 - old/checkpoints/step-00000002/manifest.json <<'PY' || fail "a manifest of before"
import hashlib, json, sys
text = open(sys.argv[1]).read()
begin = text.index(',"published":')
_, end = json.JSONDecoder().raw_decode(text, begin + len(',"published":'))
text = text[:begin] + text[end:]
text = text[:text.index(',"digest":')] + "}"
open(sys.argv[1], "w").write(text[:-1] + ',"digest":"%s"}' % hashlib.sha256(text.encode()).hexdigest())
PY
exported old old_out --step 2
grep -q 'has no record of the published model; it is taken from old/lua/gpt.lua' exported.err ||
    fail "$(cat exported.err)"
same old_out made_here "by the kept script"
cmp -s old_out/config.json made_here/config.json || fail "config.json by the kept script"

# The newest one is damaged: it is named, an older one exported; a suspect one only by name.
rank=$(ls old/checkpoints/step-00000004/rank-00000-*.safetensors | head -1)
printf 'x' | dd of="$rank" bs=1 seek=3000 conv=notrunc status=none
exported old older
grep -q 'of step 2,' exported.txt && grep -q 'exporting an older checkpoint instead' exported.err ||
    fail "a damaged step"
exits 1 damaged "$orrery" export old damaged_out --step 4
grep -q 'step 4, rank-00000' damaged.err || { cat damaged.err; fail "the damage is not named"; }
echo "loss is nan" > made/checkpoints/step-00000004/suspect.txt
exported made suspect
grep -q 'of step 2,' exported.txt && grep -q 'skipped step 4, it is marked as suspect: "loss is nan"' exported.err ||
    { cat exported.txt exported.err; fail "a suspect step"; }
exported made suspect_too --step 4

# What nobody publishes.
$orrery run "$source_root/scripts/mlp.lua" --set run.folder=mlp --set data.path=text.txt \
    --set data.tokens_per_sequence=16 --set train.sequences_per_step=4 --set train.steps=2 --set mesh.tp=2 \
    > run.log 2>&1 || { cat run.log; fail "an MLP"; }
exported mlp raw --raw
[ "$(ls raw)" = model.safetensors ] || fail "files of --raw: $(ls raw)"

# refused NAME WORDS ARGUMENTS...: exit 2, and nothing new lies there.
refused() {
    local name=$1 words=$2 word before
    shift 2
    before=$(ls)
    exits 2 refused "$orrery" export "$@"
    word=$(missing_word "$words" "$(cat refused.txt refused.err)")
    [ -z "$word" ] || { cat refused.txt refused.err; fail "$name: no \"$word\""; }
    [ "$(ls)" = "$before" ] || fail "$name left $(ls)"
}
: > refused.txt && : > refused.err
refused "an MLP" 'mlp has no published architecture|no published name|table.weight|--raw' mlp out
refused "no folder" 'nowhere is not a folder' nowhere out
refused "no run" 'cut is not a run|config.toml|already a published model' cut out
refused "no such step" '--step 3: there is no such checkpoint in made/checkpoints|there are 4, 2' made out --step 3
refused "a folder that is not empty" 'cut exists and is not empty' made cut
refused "a file in the way" 'ids.bin exists and is not a folder' made ids.bin
refused "a file as parent" 'cannot create the folder ids.bin/a' made ids.bin/a/out
mkdir half.part own.part && touch half.part/.orrery-export own.part/thesis.tex
exec {lock}< half.part/.orrery-export
flock $lock
refused "another export" 'another export is writing half.part' made half
refused "a folder of one's own" 'own.part exists and was not made by an export' made own
[ -e own.part/thesis.tex ] || fail "a folder of one's own was cleared"
exec {lock}<&-
# Of an export that was killed.
touch half.part/model-00001-of-00002.safetensors
exported made half --step 2
[ ! -e half.part ] && diff -r half made_here || fail "a folder that a killed export has left: $(ls -A half)"
refused "a type" '--dtype' made out --dtype f8
refused "files of nothing" '--shard-gb' made out --shard-gb 0
mkdir empty_run && cp made/config.toml empty_run
refused "no checkpoints" 'no checkpoint in empty_run/checkpoints' empty_run out

# A table of one's own that says too little is refused before anything starts.
sed 's/^program:weights(tensors)/tensors.published = {} program:weights(tensors)/' \
    "$source_root/scripts/gpt.lua" > own.lua
exits 2 own "$orrery" check own.lua --set data.path=text.txt --set train.sequences_per_step=4 --set train.steps=2 \
    --set data.tokens_per_sequence=32
grep -q 'published has no type' own.err || fail "$(cat own.err)"

# Stopped while it writes: a file and an fsync for each tensor, so that most tries meet it.
stopped() {
    local signal=$1 expected=$2 try code
    for try in $(seq 50); do
        rm -rf cut_off
        "$orrery" export made cut_off --step 2 --shard-gb 0.000001 > stopped.txt 2> stopped.err &
        until [ -e cut_off.part/model.safetensors.index.json ] || compgen -G "cut_off.part/model-*" > /dev/null ||
            [ -e cut_off ] || ! kill -0 $! 2> /dev/null; do :; done
        kill -$signal $! 2> /dev/null
        wait $!
        code=$?
        [ $code -eq 0 ] || [ -e cut_off ] || break  # too late
    done
    [ $code -eq "$expected" ] || { cat stopped.txt stopped.err; fail "$signal: exit code $code, expected $expected"; }
    [ ! -e cut_off ] || fail "$signal: the folder is there"
    [ $signal != KILL ] || return 0
    [ ! -e cut_off.part ] || fail "$signal left $(ls -A cut_off.part)"
    grep -q "export: stopped by signal" stopped.err || { cat stopped.err; fail "$signal: no word"; }
}
set -m  # SIGINT as a terminal gives it
stopped INT 130
stopped TERM 75
stopped KILL 137
set +m
[ -e cut_off.part ] || fail "killed: it left nothing to look at"
exported made cut_off --step 2
[ ! -e cut_off.part ] && diff -r cut_off made_here || fail "an export behind a killed one: $(ls -A cut_off)"

# A full disk (a limit on a file's size, which needs no rights).
(
    trap '' XFSZ
    ulimit -f 100
    exec "$orrery" export made full --step 2
) > full.txt 2> full.err
[ $? -eq 1 ] || { cat full.txt full.err; fail "a full disk: the exit code"; }
grep -q 'cannot write the .* bytes of full.part/model.safetensors: File too large' full.err || fail "$(cat full.err)"
[ ! -e full ] && [ ! -e full.part ] || fail "a full disk: $(ls -d full*)"
echo "1 passed, 0 failed"
