#!/usr/bin/env bash
# Every result that a script records is in metrics.jsonl, on any mesh; a name that a line has already is refused.
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
grep -qF "a result is called memory" run.log || { cat run.log; fail "why memory is refused"; }
