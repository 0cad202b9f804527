#!/usr/bin/env bash
# Held-out samples count once each, whatever the batch and the mesh: what is left of a full batch runs in programs of
# its own. A script's metric is one more program over the same params.
source "$(dirname "$0")/lib.sh"
sed '/^program:weights/i program:metric("again", function(batch) return model:loss(batch.tokens, batch.targets) end)' \
    "$source_root/scripts/gpt.lua" > gpt.lua

# evaluated FOLDER [arguments]: one step whose learning rate is 0, then all of the held-out data; the line of that.
evaluated() {
    local folder=$1
    shift
    $orrery run gpt.lua --set run.folder="$folder" --set run.seed=5 --set data.path=text.txt \
        --set data.tokens_per_sequence=32 --set data.validation=0.1 --set train.steps=1 \
        --set train.evaluate_batches=1000 --set checkpoint.final=false --set script.layers=2 --set script.embed=48 \
        --set script.heads=4 --set script.lr=0 "$@" > "$folder.log" 2>&1 || { cat "$folder.log" >&2; fail "$folder"; }
    grep eval_loss "$folder/metrics.jsonl"
}
number() { sed -E "s/.*\"$1\":([^,}]+).*/\1/"; }

whole=$(evaluated whole --set train.sequences_per_step=1) || exit 1
tokens=$(number eval_tokens <<< "$whole")
[ $((tokens / 32 % 7)) -ne 0 ] && [ $((tokens / 32)) -gt 12 ] || fail "$tokens held-out tokens leave no rest"

# same NAME [arguments]: as many tokens, the same loss but for its rounding, and the metric equal to it bit for bit.
same() {
    local name=$1 line
    shift
    line=$(evaluated "$name" "$@") || exit 1
    [ "$(number eval_tokens <<< "$line")" = "$tokens" ] || fail "$name: $line, expected $tokens tokens"
    [ "$(number eval_loss <<< "$line")" = "$(number again <<< "$line")" ] ||
        fail "$name: the metric is not the loss: $line"
    awk -v a="$(number eval_loss <<< "$whole")" -v b="$(number eval_loss <<< "$line")" \
        'BEGIN { d = a - b; exit !(d < 1e-5 * a && -d < 1e-5 * a) }' || fail "$name: $line, expected $whole"
}
same sevens --set train.sequences_per_step=7
same micro --set train.sequences_per_step=14 --set train.microbatches=2
same more_than_there_are --set train.sequences_per_step=4000
same dp --set train.sequences_per_step=14 --set mesh.dp=2
same dp_odd --set train.sequences_per_step=18 --set train.microbatches=2 --set mesh.dp=3 --set script.zero=3
same tp --set train.sequences_per_step=7 --set mesh.tp=2
same sequence --set train.sequences_per_step=7 --set mesh.tp=2 --set script.sequence=true
same pp --set train.sequences_per_step=14 --set train.microbatches=2 --set mesh.pp=2
same pp_dp --set train.sequences_per_step=40 --set train.microbatches=4 --set mesh.pp=2 --set mesh.dp=2
grep -q "again" pp_dp.log || fail "the line of the evaluation lacks the metric"

# A limit is one of full batches.
limited=$(evaluated limited --set train.sequences_per_step=7 --set train.evaluate_batches=2) || exit 1
[ "$(number eval_tokens <<< "$limited")" = $((14 * 32)) ] || fail "two batches of 7: $limited"

# A loss that is a mean, without a count: a call weighs as many samples as it has.
means() { evaluated "$@" | number eval_loss; }
sed -i 's/  return model:loss(\(.*\))$/  local s, c = model:loss(\1) return s \/ c/' gpt.lua
ones=$(means mean_of_ones --set train.sequences_per_step=1) || exit 1
sevens=$(means mean_of_sevens --set train.sequences_per_step=7) || exit 1
awk -v a="$ones" -v b="$sevens" 'BEGIN { d = a - b; exit !(d < 1e-5 * a && -d < 1e-5 * a) }' ||
    fail "means: $ones one by one, $sevens seven at a time"

# refused WORDS CALL: a script with this call behind the trace, which check refuses.
refused() {
    local words=$1 said missing
    sed "/^program:weights/i $2" "$source_root/scripts/gpt.lua" > refused.lua
    said=$($orrery check refused.lua --set data.path=text.txt --set train.sequences_per_step=4 --set train.steps=1 \
        --set data.tokens_per_sequence=32 2>&1) && { echo "$said"; fail "not refused: $2"; }
    missing=$(missing_word "$words" "$said")
    [ -z "$missing" ] || { echo "$said"; fail "$2: the message lacks \"$missing\""; }
}
refused 'refused.lua:|the program other has p|the train step has none of this name|in the metric other (refused.lua:' \
    'program:metric("other", function(b) local p = o.param { name = "p", shape = { 4 } } return (p * p):sum() end)'
refused 'duplicate metric "eval"' 'program:metric("eval", function(b) return model:loss(b.tokens, b.targets) end)'
refused 'of a metric: only letters, digits' \
    'program:metric("eval of 1", function(b) return model:loss(b.tokens, b.targets) end)'
refused 'given to program:metric returned nil' 'program:metric("none", function(b) end)'
echo "1 passed, 0 failed"
