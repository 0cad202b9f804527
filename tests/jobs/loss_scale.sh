#!/usr/bin/env bash
# f16: steps whose gradients overflow are told in the step line, in metrics.jsonl and at the end; no norm is printed.
source "$(dirname "$0")/lib.sh"
cat > half.lua << 'LUA'
local o = require "orrery"
local data = o.data.text {}
local model = require "orrery.models.gpt" { layers = 1, embed = 32, heads = 4, mlp = 48, vocab = data.vocab, seq = 16 }
local program = o.trace("gpt", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
local rate = o.lr.constant { peak = 1e-3, warmup = 100 }
program:train_with(o.optim.adamw { lr = rate }, { loss_scale = { initial = 2 ^ 20, most = 2 ^ 20 } })
program:parallel { o.strategy.data { axis = "dp" } }
program:compile():train(data)
LUA
settings=(--set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=8
    --set train.precision=f16 --set mesh.dp=2 --set run.timeout_s=20 --set run.folder=run)

# The header has the columns; each overflow halves the scale, its step has "skipped" for a norm, and the rate's warm-up
# stands still.
check() {
    local log=$1 steps=$2 lines skipped
    lines=$(awk '$1 == "step" { print $9, $10 }' "$log" | head -1)
    [ "$lines" = "loss_scale skipped" ] || { cat "$log"; fail "columns 9 and 10 are \"$lines\""; }
    ! grep -qE '(^|[ :])-?(nan|inf)($|[ ,}])' "$log" run/metrics.jsonl ||
        { cat "$log"; fail "a norm that is NaN or infinite"; }
    skipped=$(grep '"skipped"' run/metrics.jsonl | tail -1 | sed -E 's/.*"skipped":([0-9]+).*/\1/')
    [ "$skipped" -gt 2 ] && [ "$skipped" -lt "$steps" ] ||
        { cat run/metrics.jsonl; fail "$skipped of $steps skipped"; }
    [ "$(grep -c '"grad_norm":null' run/metrics.jsonl)" -eq "$skipped" ] ||
        { cat run/metrics.jsonl; fail "$skipped skipped, other norms are missing"; }
    grep -qF "$skipped of $steps steps skipped" "$log" || { cat "$log"; fail "no summary of $skipped of $steps"; }
    awk -v steps="$steps" '/MiB/ && $1 + 0 > 0 && $1 <= steps {
        scale = $10; count = $11; norm = $3
        if ((norm == "skipped") != (count > before)) { print "step " $1 ": " $0; exit 1 }
        rate = 1e-5 * ($1 - before)
        if ($4 < 0.99 * rate || $4 > 1.01 * rate) { print "rate at step " $1 ": " $0 ", expected " rate; exit 1 }
        if (was == "skipped" && scale * 2 != last) { print "scale at step " $1 ": " $0; exit 1 }
        before = count; last = scale; was = norm
    }' "$log" || fail "a skipped step is not told as one"
}

$orrery run half.lua "${settings[@]}" --set train.steps=16 --set train.log_every=1 > run.log 2>&1 ||
    { cat run.log; fail "the run"; }
check run.log 16
# A run that goes on tells what was skipped before.
$orrery run half.lua "${settings[@]}" --set train.steps=20 --set train.log_every=1 > more.log 2>&1 ||
    { cat more.log; fail "the run that goes on"; }
grep -qE "of 20 steps skipped" more.log || { cat more.log; fail "no summary after a restart"; }
# Precisions resume from each other: the scale begins again, with the steps so far as updates, or is dropped.
sed 's/, { loss_scale = .*})$/)/' half.lua > any.lua
any() {  # NAME PRECISION STEPS WORDS
    $orrery run any.lua "${settings[@]}" --set run.folder=any --set train.log_every=1 --set train.precision="$2" \
        --set train.steps="$3" > "$1.log" 2>&1 || { cat "$1.log"; fail "$1"; }
    [ -z "$4" ] || grep -qF "$4" "$1.log" || { cat "$1.log"; fail "$1: no \"$4\""; }
}
any bf16 bf16 4 ""
any bf16_f16 f16 6 \
    "the checkpoint of step 4 has no loss scale: the scale begins at 1024, and all 4 steps count as updates"
any f16 f16 8 ""
! grep -q "has no loss scale" f16.log || { cat f16.log; fail "f16 from f16"; }
any f16_f32 f32 10 "the checkpoint of step 8 has a loss scale, this run has none: its states are dropped"
python3 - any/metrics.jsonl << 'EOF' || fail "the learning rate's warm-up or the skipped steps"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps = {line["step"]: line for line in lines if "lr" in line}
assert sorted(steps) == list(range(1, 11)), sorted(steps)
before = 0  # skipped steps do not move the warm-up while there is a scale
for step in sorted(steps):
    line = steps[step]
    scaled = 5 <= step <= 8
    assert ("loss_scale" in line) == scaled and line.get("skipped", 0) < 3, line
    assert abs(line["lr"] - 1e-5 * (step - (before if scaled else 0))) < 1e-7, line
    before = line.get("skipped", 0)
EOF
grep MiB run.log | head -3
echo "1 passed, 0 failed"
