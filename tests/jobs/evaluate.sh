#!/usr/bin/env bash
# `orrery evaluate` and `sample` with a tokenizer: a run's copy of it; the same perplexity on every mesh, of text and of
# tokens, of a run and of a published folder; choices; what is wrong is refused.
source "$(dirname "$0")/lib.sh"
mkdir small
cp "$source_root/tests/tokenizer/gpt2.json" small/tokenizer.json
echo '{ "eos_token": { "content": "<|endoftext|>" } }' > small/tokenizer_config.json
"$orrery" tokenize text.txt --tokenizer small -o words > /dev/null || fail "tokenize"
tail -c 1500 text.txt > held.txt

# value WORDS FILE: the number behind the words of a line.
value() { sed -n "s/^$1 *//p" "$2" | cut -d, -f1; }
# near A B TOLERANCE: relative.
near() {
    awk -v a="$1" -v b="$2" -v t="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && b > 0 && d <= t * b) }'
}

words=(--set script.heads=4 --set data.path=words.bin --set data.tokenizer=small --set checkpoint.every_steps=10)
run_tiny run 20 "${words[@]}" > run.log 2>&1 || { cat run.log; fail "a run with a tokenizer"; }
grep -q "^vocab = 510" run/config.toml || fail "data.vocab does not follow from the tokenizer"
cmp small/tokenizer.json run/tokenizer/tokenizer.json || fail "the run has no copy of its tokenizer"
[ -f run/tokenizer/tokenizer_config.json ] || fail "the copy lacks tokenizer_config.json"

# Text goes in and out, the copy is enough, and the end of text ends it.
mv small gone
exits 0 sample "$orrery" sample run --prompt "7 plus 3" --tokens 60 --temperature 0
grep -q '^7 plus 3.*[a-z]' sample.txt || { cat sample.txt; fail "sample prints no text"; }
exits 0 again "$orrery" sample run --prompt "7 plus 3" --tokens 60 --temperature 0
cmp sample.txt again.txt || fail "the likeliest tokens differ between two calls"
exits 0 hot "$orrery" sample run --prompt "7" --tokens 4000 --temperature 3 --seed 2
grep -q '^end of text: <|endoftext|> (run/tokenizer/tokenizer_config.json)$' hot.err || { cat hot.err; fail "no end"; }
mv gone small

# Strides: each token once; more context, other sums.
exits 0 whole "$orrery" evaluate run held.txt
exits 0 stride "$orrery" evaluate run held.txt --stride 5 -o stride.json
tokens=$(sed -n 's/.* \([0-9,]*\) of \([0-9,]*\) tokens predicted.*/\1 \2/p' whole.txt | tr -d ,)
set -- $tokens
[ "$1" -eq $(($2 - 1)) ] || { cat whole.txt; fail "$1 of $2 tokens are predicted"; }
grep -q "held.txt: $(sed -n 's/.*: \([0-9,]* of [0-9,]* tokens\).*/\1/p' whole.txt)" stride.txt ||
    { cat stride.txt; fail "a stride changes the count"; }
[ "$(value perplexity whole.txt)" != "$(value perplexity stride.txt)" ] || fail "a stride changes nothing"
near "$(sed -n 's/.*"perplexity": \([0-9.]*\).*/\1/p' stride.json)" "$(value perplexity stride.txt)" 1e-5 ||
    fail "the JSON"
awk -v nats="$(value 'nats per token' whole.txt)" -v n="$1" -v bits="$(value 'bits per byte' whole.txt)" 'BEGIN {
    bytes = nats * n / log(2) / bits; exit !(bytes > 1490 && bytes < 1500.5) }' ||
    { cat whole.txt; fail "bits per byte"; }

# Every mesh, and the file of the same tokens.
for mesh in mesh.dp=1 "mesh.dp=1 --set mesh.tp=2" "mesh.dp=1 --set mesh.pp=2"; do
    exits 0 mesh "$orrery" evaluate run held.txt --set $mesh
    near "$(value perplexity mesh.txt)" "$(value perplexity whole.txt)" 2e-6 ||
        { cat mesh.txt; fail "$mesh: another perplexity"; }
done
"$orrery" tokenize held.txt --tokenizer small -o held > /dev/null || fail "tokenize what is held out"
truncate -s -2 held.bin # without the end of text
rm held.idx
exits 0 tokens "$orrery" evaluate run held.bin
cmp <(tail -3 whole.txt) <(tail -3 tokens.txt) || { cat tokens.txt; fail "tokens are scored otherwise"; }
# Read as training reads it: llm.c's header is no ids, what the mask ignores is not predicted, cut files are refused.
count=$(($(stat -c %s held.bin) / 2))
{ printf '\x88\xd8\x34\x01\x01\0\0\0'
  printf "\\x$(printf %02x $((count % 256)))\\x$(printf %02x $((count / 256)))\\0\\0"
  head -c 1012 /dev/zero
  cat held.bin; } > llmc.bin
exits 0 llmc "$orrery" evaluate run llmc.bin
cmp <(tail -3 tokens.txt) <(tail -3 llmc.txt) || { cat llmc.txt; fail "llm.c's file is scored otherwise"; }
printf '{"q": "7 plus 3", "a": " makes 10"}\n{"q": "1 plus 2 makes", "a": " 3 and so"}\n' > asked.jsonl
"$orrery" tokenize asked.jsonl --prompt q --completion a --tokenizer small -o asked > /dev/null || fail "tokenize pairs"
exits 0 masked "$orrery" evaluate run asked.bin
rm asked.mask
exits 0 open "$orrery" evaluate run asked.bin
few=$(sed -n 's/.*: \([0-9]*\) of [0-9]* tokens predicted.*/\1/p' masked.txt)
all=$(sed -n 's/.*: \([0-9]*\) of [0-9]* tokens predicted.*/\1/p' open.txt)
[ "$few" -gt 0 ] && [ "$few" -lt "$all" ] || { cat masked.txt open.txt; fail "prompts are predicted"; }
truncate -s -2 asked.bin
refused 'asked.idx, byte|it is truncated, or of another index' "$orrery" evaluate run asked.bin
refused '--set data.token_bytes=8: |token_bytes is 8, expected 2 or 4' "$orrery" evaluate run held.bin \
    --set data.token_bytes=8
exits 0 window "$orrery" evaluate run held.txt --window 16 --stride 8
grep -q "windows of 16 tokens, stride 8" window.txt || { cat window.txt; fail "--window"; }

# An older checkpoint is another model.
exits 0 older "$orrery" evaluate run held.txt --step 10
awk -v a="$(value perplexity older.txt)" -v b="$(value perplexity whole.txt)" 'BEGIN { exit !(a > 1.05 * b) }' ||
    fail "step 10 is no worse than step 20"

# Choices: what stands in the text is likelier than what does not.
for i in $(seq 0 19); do
    right=$((i % 2))
    endings=("makes 12 and so it is written" "zebra quartz vexing jumbled fox")
    printf '{"context": "%d plus 4", "endings": ["%s", "%s"], "label": %d}\n' \
        "$i" "${endings[$right]}" "${endings[1 - right]}" "$right"
done > choices.jsonl
exits 0 choices "$orrery" evaluate run --choices choices.jsonl -o choices.json
grep -q "^acc  *1.0000, 20 are correct" choices.txt || { cat choices.txt; fail "acc of what was trained"; }
# Lines that cannot be scored end the command, or are left out and counted.
{ head -5 choices.jsonl
  echo '{"context": "1 plus 1", "endings": ["makes 2"], "label": 3}'
  echo 'no JSON'
  printf '{"context": "2 plus 2", "endings": ["makes 4", "%s"], "label": 0}\n' "$(seq -s ' ' 400)"
  tail -15 choices.jsonl; } > bad.jsonl
refused 'bad.jsonl:6|"label" is 3|--skip-bad' "$orrery" evaluate run --choices bad.jsonl
exits 0 skipped "$orrery" evaluate run --choices bad.jsonl --skip-bad -o skipped.json
grep -q "^acc  *1.0000, 20 are correct" skipped.txt &&
    grep -q "^skipped  *3 lines, the first: .*bad.jsonl:6" skipped.txt &&
    grep -q '"skipped": 3' skipped.json || { cat skipped.txt; fail "lines that are left out"; }
exits 0 split "$orrery" evaluate run --choices choices.jsonl -o split.json --set mesh.dp=1 --set mesh.tp=2
paste <(tr -d ' []"' < choices.json | grep '^-') <(tr -d ' []"' < split.json | grep '^-') | tr -d , |
    awk '{ d = $1 - $2; if (d < 0) d = -d } d > 1e-3 { bad = 1 } END { exit bad || NR != 40 }' ||
    fail "tp=2 gives other log-likelihoods"

# Without a tokenizer a byte is a token.
run_tiny bytes 20 > bytes.log 2>&1 || { cat bytes.log; fail "a run of bytes"; }
exits 0 bytes "$orrery" evaluate bytes held.txt
bits=$(awk -v n="$(value 'nats per token' bytes.txt)" 'BEGIN { print n / log(2) }')
near "$(value 'bits per byte' bytes.txt)" "$bits" 1e-5 || { cat bytes.txt; fail "bits per byte of bytes"; }

# Two hosts whose files differ give no number of neither.
mkdir host0 host1
head -c 640 held.txt > host0/words.txt
tail -c 640 held.txt > host1/words.txt
sed 's/1 plus 4/2 plus 4/' choices.jsonl > host1/few.jsonl
cp choices.jsonl host0/few.jsonl
for asked in words.txt "--choices few.jsonl"; do
    port=$(free_port)
    (cd host0 && as_rank 0 2 "$port" "$orrery" evaluate ../bytes $asked) > host0.log 2>&1 &
    first=$!
    (cd host1 && as_rank 1 2 "$port" "$orrery" evaluate ../bytes $asked) > host1.log 2>&1
    second=$?
    wait $first
    [ $? -ne 0 ] && [ $second -ne 0 ] || { cat host0.log; fail "$asked: two ranks of other files"; }
    grep -q "the configuration differs between rank 1" host1.log &&
        grep -Eq "the (ids of the text|choices): " host1.log ||
        { cat host0.log host1.log; fail "$asked: no word of the files"; }
done

# A published folder, whose ids have no text here.
awk 'BEGIN { for (i = 0; i < 300; ++i) printf "\\x%02x\\x00", (i * i + 3 * i) % 31 }' | xargs -0 printf > ids.bin
llama=$source_root/tests/transformers/llama
exits 0 folder "$orrery" evaluate "$llama" ids.bin --window 24 --stride 7
grep -q "^bits per byte *unknown" folder.txt || { cat folder.txt; fail "bits of ids without text"; }
for mesh in tp dp pp; do
    exits 0 mesh "$orrery" evaluate "$llama" ids.bin --window 24 --stride 7 --set mesh.$mesh=2
    near "$(value perplexity mesh.txt)" "$(value perplexity folder.txt)" 2e-6 ||
        { cat mesh.txt; fail "$mesh=2 of a folder"; }
done

# A model whose weights are no numbers says none.
cp -r "$llama" nan && chmod -R u+w nan
for file in nan/model-*.safetensors; do
    printf '\xff\xff\xff\xff\xff\xff\xff\xff' |
        dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 8)) conv=notrunc status=none
done
exits 1 nan "$orrery" evaluate nan ids.bin
grep -q 'nan nats for window 0' nan.err || { cat nan.err; fail "NaN is no word of the window"; }
echo 'version https://git-lfs.github.com/spec/v1' > nan/config.json
refused 'nan/config.json is a pointer of Git LFS|git lfs pull' "$orrery" evaluate nan ids.bin

# A run of it that has learned nothing, saved on another mesh, says the same.
$orrery run "$source_root/scripts/hf.lua" --set run.folder=still --set checkpoint.load="$llama" \
    --set data.path=ids.bin --set data.tokens_per_sequence=24 --set data.vocab=31 --set data.validation=0 \
    --set train.sequences_per_step=2 --set train.steps=1 --set script.lr=1e-30 --set mesh.tp=2 \
    > still.log 2>&1 || { cat still.log; fail "hf.lua"; }
exits 0 still "$orrery" evaluate still ids.bin --stride 7 --set mesh.tp=1 --set train.sequences_per_step=1
cmp folder.txt still.txt || { cat folder.txt still.txt; fail "a run and its folder say other numbers"; }

refused 'name a text, a token file, or --choices' "$orrery" evaluate run
refused "--window 65: max_position_embeddings of $llama/config.json is 64|give at most 64" \
    "$orrery" evaluate "$llama" ids.bin --window 65
exits 0 beyond "$orrery" evaluate "$llama" ids.bin --window 65 --set data.tokens_per_sequence=65
refused '--stride 40: larger than the window of 32' "$orrery" evaluate run held.txt --stride 40
refused '--window 64: longer than the model|32 tokens' "$orrery" evaluate run held.txt --window 64
refused 'has no checkpoint of step 7: it has 20, 10' "$orrery" evaluate run held.txt --step 7
printf 'a\xff' > latin.txt
refused 'latin.txt: byte 0xff at offset 1 is not UTF-8' "$orrery" evaluate run latin.txt
truncate -s 1100M hole.txt
refused 'hole.txt has 1.1 GiB, the maximum is 1.0 GiB|split it' "$orrery" evaluate run hole.txt
refused 'neither config.toml nor config.json' "$orrery" evaluate small held.txt
refused 'cannot convert text to token ids|data.tokenizer' "$orrery" evaluate "$llama" held.txt
printf '\xff\x01\x00\x00' > far.bin
refused 'far.bin: token 0 has id 511, at byte 0; the model|510' "$orrery" evaluate run far.bin
sed '3s/"label": ./"label": 2/' choices.jsonl > bad.jsonl
refused 'bad.jsonl:3: "label" is 2, but there are 2 endings' "$orrery" evaluate run --choices bad.jsonl
cp "$source_root/tests/tokenizer/qwen2.json" other.json
refused 'other.json differs from the one that the run in run|run.folder' \
    "$orrery" sample run --set data.tokenizer=other.json
refused 'other.json differs from the one that the run in run' \
    run_tiny run 30 "${words[@]}" --set data.tokenizer=other.json
refused "has 510 token ids, but the model's vocabulary has 300" run_tiny few 3 "${words[@]}" --set data.vocab=300
refused 'text.txt is a text that is read as bytes|orrery tokenize text.txt' run_tiny wrong 3 --set data.tokenizer=small
echo "1 passed, 0 failed"
