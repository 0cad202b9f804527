#!/usr/bin/env bash
# A batch that grows from 2 to 8 sequences: each step takes its samples once, two ranks follow one, and a run that is
# resumed in the middle of the ramp goes on bit by bit.
source "$(dirname "$0")/lib.sh"
# Sizes 2, 4, 6 for 16 of the first 48 sequences each, then 8: steps 1-8, 9-12, 13-15 and 16-.
ramp=(--set train.sequences_per_step=8 --set train.ramp_start=2 --set train.ramp_increment=2 --set train.ramp_samples=48
    --set checkpoint.every_steps=5 --set checkpoint.keep=10 --set checkpoint.async=false)
run_tiny whole 20 "${ramp[@]}" > whole.log 2>&1 || { cat whole.log; fail "the uninterrupted run"; }
grep -q "batch: 2 from step 1, 4 from step 9, 6 from step 13, 8 from step 16" whole.log ||
    { cat whole.log; fail "the summary does not show the ramp"; }
grep -q "batch ramp: train steps of 4 batch sizes compiled in [0-9.]* s" whole.log ||
    { cat whole.log; fail "how long compiling took"; }
losses whole > whole.txt
[ "$(wc -l < whole.txt)" -eq 20 ] || fail "not 20 steps"
grep -q '"samples":90' whole/checkpoints/step-00000020/manifest.json ||
    grep -q 'samples.\{1,4\}90' whole/checkpoints/step-00000020/manifest.json || fail "the cursor of step 20 is not 90"

# Resume at step 10, which is in the middle of the steps of 4 sequences.
cp -r whole resumed
sed -i 's/whole/resumed/' resumed/config.toml
rm -r resumed/checkpoints/step-000000{15,20}
run_tiny resumed 20 "${ramp[@]}" > resumed.log 2>&1 || { cat resumed.log; fail "the resumed run"; }
grep -q "resumed from step 10" resumed.log || { cat resumed.log; fail "it did not resume from step 10"; }
losses resumed > resumed.txt
cmp whole.txt resumed.txt || fail "another trajectory after resuming in the ramp"
for file in whole/checkpoints/step-00000020/*.safetensors; do
    cmp "$file" "resumed/checkpoints/step-00000020/$(basename "$file")" || fail "another state after resuming"
done

# A size that cannot be made: check says so, and a run does before its first step.
sed 's/^  return model:loss/  if batch.tokens.shape[1] == 6 then error("no six") end\n&/' \
    "$source_root/scripts/gpt.lua" > no_six.lua
grep -q "no six" no_six.lua || fail "no_six.lua"
no_six() {
    $orrery "$1" no_six.lua --set run.folder=no_six --set mesh.dp=2 --set data.path=text.txt \
        --set data.tokens_per_sequence=32 --set data.validation=0.1 --set train.steps=20 --set script.layers=1 \
        --set script.embed=16 --set script.heads=2 "${ramp[@]}" --set checkpoint.every_steps=0
}
no_six check > check.log 2>&1 && { cat check.log; fail "check took a size that cannot be made"; }
no_six run > no_six.log 2>&1 && { cat no_six.log; fail "the run took it, too"; }
grep -q "no six" no_six.log || { cat no_six.log; fail "it does not say what is wrong"; }
[ ! -e no_six/metrics.jsonl ] || fail "it has trained"

# refused WORDS SED: a model that check refuses with a ramp.
refused() {
    local said missing
    sed "$2" "$source_root/scripts/gpt.lua" > refused.lua
    said=$($orrery check refused.lua --set data.path=text.txt --set data.tokens_per_sequence=32 \
        --set train.steps=1 "${ramp[@]}" 2>&1) && { echo "$said"; fail "not refused: $2"; }
    missing=$(missing_word "$1" "$said")
    [ -z "$missing" ] || { echo "$said"; fail "$2: the message lacks \"$missing\""; }
}
refused 'is not deterministic|a counter, a cache or math.random' \
    's/^  return model:loss(\(.*\))$/  local s, c = model:loss(\1) return s * math.random(), c/'
refused 'the program train of 6 has pp f32[3,2], the train step has f32[2,3]' \
    's/^  return model:loss(\(.*\))$/  local six = batch.tokens.shape[1] == 6\
  local pp = o.param { name = "pp", shape = { six and 3 or 2, six and 2 or 3 } }\
  local s, c = model:loss(\1) return s + pp:sum(), c/; /^program:weights/d'

# Another ramp is another trajectory: refused.
run_tiny resumed 20 "${ramp[@]}" --set train.ramp_samples=40 > other.log 2>&1
[ $? -ne 0 ] && grep -q "the saved ramp is" other.log || { cat other.log; fail "another ramp was not refused"; }

# One rank draws the same samples.
run_tiny alone 20 "${ramp[@]}" --set mesh.dp=1 > alone.log 2>&1 || { cat alone.log; fail "one rank"; }
losses alone > alone.txt
paste whole.txt alone.txt | awk '{ d = $2 - $5; if (d < 0) d = -d }
    d > 1e-4 * $5 { print "step", $1, $2, $5; bad = 1 }
    END { exit bad }' || fail "two ranks do not follow one"
echo "1 passed, 0 failed"
