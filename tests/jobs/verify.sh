#!/usr/bin/env bash
# orrery verify: a right job passes, an injected mistake is named and ends in exit code 1; check lists and forbids.
source "$(dirname "$0")/lib.sh"
gpt=$source_root/scripts/gpt.lua
settings=(--set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=8
    --set train.steps=4 --set script.layers=2 --set script.embed=48 --set script.heads=3)

# says FILE WORDS...: every word is in the file.
says() {
    local file=$1 word
    shift
    for word in "$@"; do grep -qF -- "$word" "$file" || { cat "$file"; fail "no \"$word\" in $file"; }; done
}

$orrery verify "$gpt" "${settings[@]}" --set mesh.dp=4 --set train.microbatches=2 > right.log 2>&1 ||
    { cat right.log; fail "a right job does not pass"; }
says right.log "4 ranks as threads" "PASS: " "of the program's values agree on every rank"

says right.log "not verified: transport shm of axis dp"

# Hybrid sharding, and a pipeline whose stages differ, come to what one device does.
$orrery verify "$gpt" "${settings[@]}" --set mesh.rep=2 --set mesh.dp=2 --set script.zero=3 > hybrid.log 2>&1 ||
    { cat hybrid.log; fail "hybrid sharding does not pass"; }
says hybrid.log "gpt on rep=2 dp=2: 4 ranks as threads" "PASS: "
$orrery verify "$gpt" "${settings[@]}" --set script.layers=5 --set mesh.pp=2 --set train.microbatches=4 \
    --set script.pipeline=interleaved --set script.stages=1,2,1,1 > stages.log 2>&1 ||
    { cat stages.log; fail "uneven stages do not pass"; }
says stages.log "2 ranks as threads" "PASS: "

# One rank needs no transport; half precision and more steps are no mistakes; 1 % in bf16 is one.
$orrery verify "$gpt" "${settings[@]}" > alone.log 2>&1 || { cat alone.log; fail "one rank does not pass"; }
says alone.log "1 rank as threads" "PASS: "
$orrery verify "$gpt" "${settings[@]}" --set mesh.tp=2 --set script.sequence=true --set script.heads=4 \
    --set train.precision=bf16 --steps 4 > half.log 2>&1 || { cat half.log; fail "a right job in bf16 does not pass"; }
says half.log "4 steps" "PASS: "
$orrery verify "$gpt" "${settings[@]}" --set mesh.dp=2 --set train.precision=bf16 \
    --inject scale,rank=1,tensor=h.0.mlp.up.weight.grad > half_scaled.log 2>&1
[ $? -eq 1 ] || { cat half_scaled.log; fail "a scaled gradient in bf16: expected exit code 1"; }
says half_scaled.log "tensor    h.0.mlp.up.weight.grad" "rank 1 (dp=1)" "this rank is wrong"

# The algorithms of the configuration are those that run, and those that the plan's bytes are of.
$orrery verify "$gpt" "${settings[@]}" --set mesh.dp=4 --set collectives.dp=ring > ring.log 2>&1 ||
    { cat ring.log; fail "with collectives.dp = ring a right job does not pass"; }
says ring.log "collectives as configured: all_reduce over dp by ring" "PASS: "

$orrery verify "$gpt" "${settings[@]}" --set mesh.dp=4 --set train.microbatches=2 \
    --inject scale,rank=2,tensor=h.1.mlp.up.weight.grad,micro=1 > scaled.log 2>&1
[ $? -eq 1 ] || { cat scaled.log; fail "a scaled gradient: expected exit code 1"; }
says scaled.log "tensor    h.1.mlp.up.weight.grad" "matmul_dw" "gpt.lua:" "rank 2 (dp=2), micro-batch 1, step 1"

$orrery verify "$gpt" "${settings[@]}" --set mesh.dp=2 \
    --inject unreduced,rank=1,tensor=h.0.attn.q.weight.grad > kept.log 2>&1
[ $? -eq 1 ] || { cat kept.log; fail "an unreduced bucket: expected exit code 1"; }
says kept.log "all_reduce over dp" "rank 1 (dp=1), step 1" "this rank's result differs from a replay"

# What shares a message in the run does so here, too, and what does not in the run, does not.
together() {
    local log=$1
    shift
    $orrery verify "$gpt" "${settings[@]}" --set mesh.dp=2 --set mesh.tp=2 --set script.heads=4 \
        --set script.sequence=true --inject unreduced,rank=1,tensor=h.0.ln_1.weight.grad "$@" > "$log" 2>&1
    [ $? -eq 1 ] || { cat "$log"; fail "an unreduced gradient over two axes: expected exit code 1"; }
}
together joined.log
says joined.log "all_reduce over dp+tp"
together apart.log --set transport.axis.tp=threads
says apart.log "all_reduce over"
! grep -q "dp+tp" apart.log || { cat apart.log; fail "one message over axes of two transports"; }

$orrery verify "$gpt" "${settings[@]}" --set mesh.dp=128 --set train.sequences_per_step=128 > many.log 2>&1
[ $? -eq 2 ] || { cat many.log; fail "128 ranks: expected exit code 2"; }
says many.log "at most 64"

$orrery check "$gpt" "${settings[@]}" --set mesh.dp=2 > check.log 2>&1 || { cat check.log; fail "check"; }
says check.log "redistributions a step" "all_reduce over dp: h.*.mlp.up.weight.grad" "none is implicit"

# A strategy that splits what softmax reads whole: listed, and refused where the script forbids it.
script() {
    cat << LUA
local o = require "orrery"
local strategy = require "orrery.strategy"
local wide = strategy.define("wide", { axis = "tp" }, function(program, mesh, options)
  for p in program:params() do
    if p.name == "lm.weight" then p:store { [options.axis] = strategy.S(2) } end
  end
end)
local data = o.data.text {}
local nn = require "orrery.nn"
local program = o.trace("lm", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "table", { "vocab", data.vocab }, { "embed", 32 })
  return nn.linear(x, "lm", { "vocab", data.vocab }):softmax():square():sum(), o.constant(8)
end)
program:train_with(o.optim.adamw { lr = 1e-3 })
program:parallel { wide {}$1 }
program:compile():train(data)
LUA
}
script "" > free.lua
script ", forbid_implicit = true" > strict.lua
script ", implicit_budget_mib = 1000" > budget.lua
wide=(--set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=8 --set train.steps=4
    --set mesh.tp=2)
for name in free budget; do
    $orrery check $name.lua "${wide[@]}" > $name.log 2>&1 || { cat $name.log; fail "check $name.lua"; }
    says $name.log "IMPLICIT" "that no strategy asked for"
done
$orrery run strict.lua "${wide[@]}" --set run.folder=run > strict.log 2>&1
[ $? -eq 2 ] || { cat strict.log; fail "a forbidden gather: expected exit code 2"; }
says strict.log "strict.lua:12" "all_gather over tp sends" "by wide, strict.lua:15" "softmax reads dim 2 (vocab) whole"
[ ! -e run ] || fail "a forbidden gather: it wrote $(find run)"
echo "1 passed, 0 failed"
