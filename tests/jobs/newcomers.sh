#!/usr/bin/env bash
# Mistakes of who comes from another program, newcomers.txt: exit code, words, and nothing half-written.
source "$(dirname "$0")/lib.sh"
here=$source_root/tests/jobs
published=$source_root/tests/transformers
fixtures=$source_root/tests/tokenizer
hf=$source_root/scripts/hf.lua

# What the rows name. A copy of a published folder: spoilt NAME.
spoilt() { cp -r "$published/llama" "$1" && chmod -R u+w "$1"; }
printf 'GGUF\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00' > model.gguf
printf 'PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00\x00\x00archive/data.pkl' > model.pt
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 14000\n' 0 > pointer
mkdir bare pth only_weights small unigram sentencepiece pointed
cp "$published/llama/config.json" bare
cp "$published/llama/config.json" pth && cp model.pt pth/pytorch_model.bin
cp "$published/gpt2/model.safetensors" only_weights
cp "$fixtures/gpt2.json" small/tokenizer.json
echo '{ "eos_token": "<|endoftext|>" }' > small/tokenizer_config.json
sed 's/"type":"BPE"/"type":"Unigram"/' small/tokenizer.json > unigram/tokenizer.json
printf '\x0a\x0e\x0a\x05<unk>' > sentencepiece/tokenizer.model
cp pointer pointed/tokenizer.json
spoilt lfs_weights && cp pointer lfs_weights/model-00001-of-00004.safetensors
spoilt lfs_config && cp pointer lfs_config/config.json
spoilt lfs_index && cp pointer lfs_index/model.safetensors.index.json
spoilt longrope && sed -i 's/"rope_type": "llama3"/"rope_type": "longrope"/' longrope/config.json
spoilt quantized && sed -i 's/^{/{ "quantization_config": { "quant_method": "gptq" },/' quantized/config.json
spoilt mamba && sed -i 's/"model_type": "[a-z0-9]*"/"model_type": "mamba"/' mamba/config.json
spoilt other_sizes && sed -i 's/"vocab_size": 38/"vocab_size": 40/' other_sizes/config.json
awk 'BEGIN { for (i = 0; i < 2000; ++i) printf "\\x%02x\\x00", (i * i + 3 * i) % 31 }' | xargs -0 printf > ids.bin
seq 81100 | sed 's/.*/{"text": "line &"}/; 81002s/line.*/cut/' > long.jsonl
echo '{"content": "this is text"}' > content.jsonl
printf 'MMIDIDX' > alone.idx
printf 'PAR1\x15\x04\x15\x10PAR1' > rows.parquet
echo 'some text of some length' | gzip -c > text.gz

# What a row may run: a model of a published folder over ids.bin.
train() {
    local weights=$1
    shift
    "$orrery" run "$hf" --set run.folder=out --set checkpoint.load="$weights" --set data.path=ids.bin \
        --set data.token_bytes=2 --set data.vocab=31 --set data.tokens_per_sequence=12 --set data.validation=0.1 \
        --set train.sequences_per_step=4 --set train.steps=2 --set run.timeout_s=20 "$@"
}

# A run of a published folder, and one whose model nobody publishes.
train "$published/llama" --set run.folder=run --set checkpoint.every_steps=2 > run.log 2>&1 ||
    { cat run.log; fail "a run"; }
"$orrery" run "$source_root/scripts/mlp.lua" --set run.folder=mlp --set data.path=text.txt \
    --set data.tokens_per_sequence=16 --set train.sequences_per_step=4 --set train.steps=1 > run.log 2>&1 ||
    { cat run.log; fail "an MLP"; }
cp -r run unsaved && rm -r unsaved/checkpoints
# A disk that is full: a limit on a file's size, which needs no rights.
on_full_disk() { (trap '' XFSZ && ulimit -f 8 && exec "$@"); }
listing() { find . -not -name 'row.*' -printf '%p %s\n' | sort; }
listing > ../before.$$
trap 'rm -f "$work"/../before.$$; jobs -p | xargs -r kill -9 2>/dev/null; rm -rf "$work"' EXIT
failures=0 rows=0
while IFS='|' read -r _ mistake code command words; do
    [[ $mistake == *mistake* || $mistake == -* || -z $mistake ]] && continue
    read -r code <<< "$code"
    rows=$((rows + 1))
    command=${command#*\`} command=${command%\`*}
    (eval "$command") > row.txt 2> row.err
    found=$?
    problem=
    [ $found -eq "$code" ] || problem="exit code $found"
    word=${words%|*}
    word=$(missing_word "${word//;/|}" "$(cat row.txt row.err)")
    [ -z "$word" ] || problem="$problem, no \"$word\""
    changed=$(listing | diff ../before.$$ - | head -5)
    [ -z "$changed" ] || problem="$problem, it changed $changed"
    [ -z "$problem" ] && continue
    failures=$((failures + 1))
    echo "FAILED$mistake: $problem: $(cat row.txt row.err)"
    rm -rf out
done < "$here/newcomers.txt"
[ $rows -ge 25 ] || fail "only $rows mistakes"
echo "$((rows - failures)) passed, $failures failed"
[ $failures -eq 0 ]
