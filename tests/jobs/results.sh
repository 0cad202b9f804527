#!/usr/bin/env bash
# Every result that a script records is in metrics.jsonl, on any mesh; a name that a line has already is refused. What
# o.result declares in the forward pass is added up over micro-batches and ranks as the loss is.
source "$(dirname "$0")/lib.sh"
cat > recorded.lua << 'LUA'
local o = require "orrery"
local data = o.data.text {}
local model = require "orrery.models.gpt" { layers = 2, embed = 32, heads = 4, mlp = 48, vocab = data.vocab, seq = 16 }
local program = o.trace("gpt", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
local adamw = o.optim.adamw { lr = 1e-3 }
program:train_with(function(update)
  adamw(update)
  local sum
  for p in update:params() do
    local square = p:grad():sumsq()
    sum = sum and sum + square or square
  end
  update:result(o.options { name = { "grad_sumsq", "what the sum is called" } }.name, sum)
end)
program:parallel { o.strategy.pipeline { axis = "pp" }, o.strategy.data { axis = "dp" } }
program:compile():train(data)
LUA
settings=(--set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=8
    --set train.steps=4 --set run.timeout_s=20)
for mesh in dp=1 dp=2 pp=2; do
    $orrery run recorded.lua "${settings[@]}" --set mesh.$mesh --set run.folder=$mesh --set train.microbatches=2 \
        > run.log 2>&1 || { cat run.log; fail "the run with $mesh"; }
    [ "$(grep -c '"grad_sumsq":' $mesh/metrics.jsonl)" -eq 4 ] ||
        { cat run.log $mesh/metrics.jsonl; fail "a result is missing with $mesh"; }
    # grad_norm is its root over the 128 tokens of a step
    grep grad_sumsq $mesh/metrics.jsonl | sed -E 's/.*"grad_norm":([^,]+).*"grad_sumsq":([^,}]+).*/\1 \2/' |
        awk '{ d = $1 * $1 * 16384 - $2; if (d < 0) d = -d; if (!($2 > 0) || d > 1e-4 * $2) exit 1 }' ||
        { cat $mesh/metrics.jsonl; fail "another sum with $mesh"; }
done
# Several numbers, of a param of the last stage.
sed 's/^  local sum$/  local sum, last/; s/local square = /last = #p.shape == 2 and p:grad() or last; &/
    s/^  update:result(.*/&\n  update:result("rows", (last * last):sum(2))/' recorded.lua > rows.lua
for mesh in dp=1 dp=2 pp=2; do
    $orrery run rows.lua "${settings[@]}" --set mesh.$mesh --set run.folder="rows $mesh" --set train.microbatches=2 \
        > run.log 2>&1 || { cat run.log; fail "several numbers with $mesh"; }
    sed -nE 's/.*"rows":\[([^]]+)\].*/\1/p' "rows $mesh/metrics.jsonl" | tr , '\n' > "rows $mesh.txt"
    paste "rows dp=1.txt" "rows $mesh.txt" |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 1e-4 * $1 + 1e-9) exit 1 }
             END { if (NR < 64) exit 1 }' ||
        { paste "rows dp=1.txt" "rows $mesh.txt" | head; fail "other rows with $mesh"; }
done
# What is split over ranks or too long is named instead; check says so before any rank starts.
sed 's/update:result(.*/update:result("rows", (first * first):sum(2))/; s/local sum$/local sum, first/
    s/local square = /first = first or p:grad(); &/; s/axis = "dp" }/axis = "dp", zero = 3 }/' recorded.lua > split.lua
for command in check run; do
    $orrery $command split.lua "${settings[@]}" --set mesh.dp=2 --set run.folder=split > $command.log 2>&1 ||
        { cat $command.log; fail "$command with a split result"; }
    grep -qF "result rows is f32[16], split over ranks" $command.log ||
        { cat $command.log; fail "$command says nothing"; }
done
! grep -q rows split/metrics.jsonl || fail "a part of a result is in metrics.jsonl"
$orrery check recorded.lua "${settings[@]}" --set script.name=memory > run.log 2>&1 && fail "check takes memory"
$orrery run recorded.lua "${settings[@]}" --set script.name=memory --set run.folder=clash > run.log 2>&1 &&
    fail "a result may be called memory"
grep -qF "result memory has the name of a built-in key" run.log || { cat run.log; fail "why memory is refused"; }

# Numbers of the forward pass: the loss under another name, and others of the activations, which meshes sum in parts.
cat > declared.lua << 'LUA'
local o = require "orrery"
local data = o.data.text {}
local model = require "orrery.models.gpt" { layers = 2, embed = 32, heads = 4, mlp = 48, vocab = data.vocab, seq = 16 }
local program = o.trace("gpt", data.signature, function(batch)
  local logits = model:logits(batch.tokens)
  local loss, count = logits:cross_entropy(batch.targets)
  o.result("again", loss, count)
  o.result("size", (logits * logits):sum(), count * 255)
  o.result("steps", o.constant(1), 1)
  return loss, count
end)
program:train_with(o.optim.adamw { lr = 1e-3, clip = 1 })
program:parallel {
  o.strategy.pipeline { axis = "pp" }, o.strategy.tensor { axis = "tp" }, o.strategy.zero { axis = "dp", stage = 3 },
}
program:compile():train(data)
LUA
settings+=(--set train.evaluate_batches=2 --set checkpoint.final=false)
number() { sed -E "s/.*\"$1\":([^,}]+).*/\1/"; }
declared() {  # FOLDER [arguments]: a line a number, of each step and of the evaluation
    local folder=$1 name
    shift
    $orrery run declared.lua "${settings[@]}" --set run.folder="$folder" "$@" > run.log 2>&1 ||
        { cat run.log; fail "declared results with $*"; }
    for name in loss again size steps; do grep '"loss"' "$folder/metrics.jsonl" | number $name; done
    for name in eval_loss eval_again eval_size eval_steps; do grep eval_ "$folder/metrics.jsonl" | number $name; done
}
declared one > one.txt
[ "$(wc -l < one.txt)" -eq 20 ] || { cat one.txt; fail "one rank tells other numbers"; }
[ "$(sed -n 1,4p one.txt)" = "$(sed -n 5,8p one.txt)" ] && [ "$(sed -n 17p one.txt)" = "$(sed -n 18p one.txt)" ] ||
    { cat one.txt; fail "the loss under another name is another one"; }
[ "$(sed -n '13,16p;20p' one.txt | sort -u)" = 1.0 ] || { cat one.txt; fail "a constant is not itself"; }
for mesh in "dp=2" "tp=2" "pp=2" "pp=2 tp=2"; do
    arguments=(--set train.microbatches=2)
    for axis in $mesh; do arguments+=(--set "mesh.$axis"); done
    declared "declared $mesh" "${arguments[@]}" > meshed.txt
    paste one.txt meshed.txt | awk '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 1e-5 * $1) exit 1 }' ||
        { paste one.txt meshed.txt; fail "other declared results with $mesh"; }
    $orrery verify declared.lua "${settings[@]}" --steps 1 "${arguments[@]}" > verify.log 2>&1 ||
        { tail -20 verify.log; fail "verify with $mesh"; }
done
$orrery check declared.lua "${settings[@]}" > check.log 2>&1 || fail "check"
echo "1 passed, 0 failed"
