#!/usr/bin/env bash
# The walk of scripts/README.md from a published folder to an export, its commands as they stand there. The Python
# behind them runs in each interpreter that ORRERY_TRANSFORMERS names (with torch and transformers):
# scripts/conformance.
source "$(dirname "$0")/lib.sh"
section='## From a published folder to your own'
# block LANGUAGE: the section's first block of it.
block() {
    awk -v section="$section" -v fence="\`\`\`$1" '
        /^## / { inside = $0 == section }
        inside && $0 == "```" { open = 0; if (seen) exit }
        inside && open { print; seen = 1 }
        inside && $0 == fence { open = 1 }' "$source_root/scripts/README.md"
}

# What somebody publishes: a Llama of 512 ids that has learned a little, and the tokenizer that it was made with.
mkdir words build && cp "$source_root/tests/tokenizer/gpt2.json" words/tokenizer.json
echo '{ "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>",
  "model_input_names": ["input_ids", "attention_mask"] }' > words/tokenizer_config.json
"$orrery" tokenize text.txt --tokenizer words -o words/text > words.txt || fail "tokens of the first model"
run_tiny first 30 --set mesh.dp=1 --set script.model=llama --set data.tokenizer=words --set data.path=words/text.bin \
    > first.log 2>&1 || { cat first.log; fail "the first model"; }
mkdir models && exits 0 first "$orrery" export first models/base
sed -i 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 128/' models/base/config.json
ls models/base | grep -qx tokenizer.json || fail "the export has no tokenizer: $(ls models/base)"

ln -s "$orrery" build/orrery && ln -s "$source_root/scripts" "$source_root/configs" .
head -c 50000 text.txt > corpus.txt && tail -c 3000 text.txt > held.txt
block sh > walk.sh && block python > walk.py
[ "$(grep -c '^build/orrery' walk.sh)" -ge 8 ] && [ -s walk.py ] || fail "the section of the manual: $(cat walk.sh)"
bash -eu walk.sh > walk.txt 2> walk.err || { cat walk.txt walk.err; fail "the walk"; }
perplexities=$(awk '$1 == "perplexity" { print $2 }' walk.txt)
set -- $perplexities
[ $# -eq 3 ] || { cat walk.txt; fail "three evaluations"; }
awk "BEGIN { exit !($2 < $1) }" || fail "nothing was learned: perplexity $1 before, $2 behind"
# Batches of another size are summed in another order.
awk "BEGIN { d = $2 - $3; if (d < 0) d = -d; exit !(d < 1e-6 * $2) }" || fail "the run says $2, its export $3"
drawn=$(grep '^one plus' walk.txt)
[ -n "$drawn" ] || { cat walk.txt; fail "nothing was drawn"; }

for python in ${ORRERY_TRANSFORMERS:-}; do
    "$python" walk.py > python.txt 2> python.err || { cat python.err; fail "$python"; }
    [[ $(tr -d '\n' < python.txt) == "$(tr -d '\n' <<< "$drawn")"* ]] || fail "$python: $(cat python.txt), here: $drawn"
done
echo "1 passed, 0 failed"
