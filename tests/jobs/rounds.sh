#!/usr/bin/env bash
# Rounds: gradients in one program and the update in another give the bits of the plain step, on meshes, resumed between
# any two steps; a round of two optimizers is one after the other; a save within a round resumes at its place.
source "$(dirname "$0")/lib.sh"
long=${ORRERY_LONG:-}  # ends runs after every step, between processes; its table says so
cat > round.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { round = { "step", "" }, zero = { 0, "" }, lr = { 1e-2, "" } }
local data = o.data.text {}
local program = o.trace("round", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "tokens", { "vocab", data.vocab }, { "embed", 32 })
  for i = 0, 1 do
    nn.scope("layers." .. i, function() x = x + nn.mlp(nn.layernorm(x, "ln"), { mlp = 48 }) end)
  end
  return nn.linear(nn.layernorm(x, "ln_f"), "head", { "vocab", data.vocab }):cross_entropy(batch.targets)
end)
local adamw = o.optim.adamw { lr = opt.lr }
local function count() return o.state { name = "count", shape = {} } end
local programs = {
  A = adamw,
  B = o.optim.sgd { lr = opt.lr, momentum = 0 },
  G = function(update)                                          -- leaves gradients and their count in arrays
    local n = update:count()
    for p in update:params() do update:set(update:state(p, "gradient"), p:grad()) end
    update:set(count(), n)
  end,
  U = function(update)                                          -- and updates from them
    for p in update:params() do update:gradient(p, update:state(p, "gradient")) end
    update:count(count())
    adamw(update)
  end,
  H = function(update)                                          -- halves params, and counts its calls
    for p in update:params() do update:set(p, p * 0.5) end
    local calls = o.state { name = "calls", shape = {} }
    update:set(calls, calls + 1)
    update:result("calls", calls + 1)
    update:result("seen", o.step() * 1)
  end,
}
for _, name in ipairs { "A", "B", "G", "U", "H" } do
  if (" " .. opt.round .. " "):find("[ (]" .. name .. "[ *)]") then program:also(name, programs[name]) end
end
if opt.round:find "step" then program:train_with(adamw) end
if opt.round ~= "step" then program:round(opt.round) end
program:parallel {
  o.strategy.pipeline { axis = "pp" }, o.strategy.tensor { axis = "tp" },
  o.strategy.data { axis = "dp", zero = opt.zero },
}
local run = program:compile()
print(run:summary())
run:train(data)
LUA
settings=(--set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=8
    --set train.steps=6 --set data.validation=0.1 --set train.evaluate_every=3 --set train.evaluate_batches=2
    --set checkpoint.every_steps=1 --set run.timeout_s=20)
ran() { trained_in "$1" round.lua "${settings[@]}" "${@:2}"; losses "$1" > "$1.txt"; }
number() { sed -E "s/.*\"$1\":([^,}]+).*/\1/"; }
same() { cmp -s "$1.txt" "$2.txt" || { paste "$1.txt" "$2.txt"; fail "$3"; }; }

# The bits of the plain step, on each mesh; a run that ends after each step resumes bit for bit.
for case in "" "mesh.tp=2 train.microbatches=2" "mesh.pp=2 train.microbatches=4" "mesh.dp=2" \
    "mesh.dp=2 script.zero=1" "mesh.dp=2 script.zero=2 train.microbatches=2" "mesh.dp=2 script.zero=3"; do
    arguments=()
    for setting in $case; do arguments+=(--set "$setting"); done
    ends="3 6"
    [ -n "$case" ] || ends="1 3 4 6"
    [[ $case == *zero=3* ]] || arguments+=(--set run.transport=threads)  # one case between processes
    [ -z "$long" ] || { ends="1 2 3 4 5 6"; arguments+=(--set run.transport=shm); }
    ran plain "${arguments[@]}"
    [ "$(wc -l < plain.txt)" -eq 6 ] || { cat plain.txt; fail "six steps with $case"; }
    ran apart --set "script.round=G U" "${arguments[@]}"
    same plain apart "G U has other bits with $case"
    [ "$(grep '"loss"' plain/metrics.jsonl | number grad_norm)" = \
        "$(grep '"loss"' apart/metrics.jsonl | number grad_norm)" ] || fail "other gradient norms with $case"
    for steps in $ends; do ran part --set "script.round=G U" --set train.steps=$steps "${arguments[@]}"; done
    same plain part "resumed with $case"
    echo "round of G and U, ${case:-one rank}: resumed bit for bit after steps $ends" >> resumed.txt
    rm -rf plain apart part
done

# One optimizer, then another: as a run that is resumed with the other.
ran both --set "script.round=A*3, then B"
ran first --set "script.round=A" --set train.steps=3
head -3 both.txt | cmp -s - first.txt || { paste both.txt first.txt; fail "A*3"; }
ran all_a --set "script.round=A*3, then A"
[ "$(sed -n 4p both.txt)" = "$(sed -n 4p all_a.txt)" ] && [ "$(sed -n 5p both.txt)" != "$(sed -n 5p all_a.txt)" ] ||
    { paste both.txt all_a.txt; fail "B trains from step 4"; }

# A program between steps runs at its place, sees the step's number, and the round resumes at the saved place.
ran halved --set "script.round=step*2 H"
grep '"loss"' halved/metrics.jsonl | number calls | tr '\n' ' ' > calls.txt
[ "$(cat calls.txt)" = "null 1.0 null 2.0 null 3.0 " ] || { cat calls.txt halved/metrics.jsonl; fail "calls of H"; }
grep '"loss"' halved/metrics.jsonl | number seen | tr '\n' ' ' > seen.txt
[ "$(cat seen.txt)" = "null 2.0 null 4.0 null 6.0 " ] || { cat seen.txt; fail "H's step"; }
ran part --set "script.round=step*2 H" --set train.steps=3
refused "within the round|step*2 H" $orrery run round.lua "${settings[@]}" --set run.folder=part \
    --set "script.round=step*3 H"
ran part --set "script.round=step*2 H"
same halved part "resumed within a round"

# Verify walks each program of a round, a repetition as two; check prints what a rank sends.
verified() {  # a round, the number of its programs, settings
    local arguments=()
    for setting in "${@:3}"; do arguments+=(--set "$setting"); done
    $orrery verify round.lua "${settings[@]}" --set "script.round=$1" "${arguments[@]}" > verified.txt ||
        { cat verified.txt; fail "verify of $1 with ${*:3}"; }
    [ "$(grep -c ^PASS verified.txt)" -eq "$2" ] || { cat verified.txt; fail "each program of $1 is verified"; }
}
verified "G U" 2 mesh.dp=2 script.zero=2
verified "G U" 2 mesh.pp=2 mesh.tp=2 train.microbatches=2
verified "step*50 H" 2 mesh.dp=2
verified "A*3, then B H" 3 mesh.tp=2
$orrery check round.lua "${settings[@]}" --set "script.round=G U" --set mesh.dp=2 > checked.txt
grep -q "^round over dp: a rank sends .* per step on average, max .* in one step" checked.txt ||
    { cat checked.txt; fail "check prints the mean and the peak of a round"; }

clusters=$source_root/configs/clusters
$orrery simulate round.lua "${settings[@]}" --set "script.round=step*4 H" --set mesh.dp=2 \
    --cluster "$clusters/a100_80g.toml" > simulated.txt
grep -Eq "^round       step\*4 H: step .*, H .*; step .* on average, max " simulated.txt ||
    { cat simulated.txt; fail "simulate has the times of a round"; }
$orrery draw round.lua "${settings[@]}" --set "script.round=G U" --program U > drawn.txt 2>&1
grep -q "round.U on one rank: no forward or backward pass" drawn.txt || { cat drawn.txt; fail "draw --program"; }

# Actions of the host.
ran acted --set "script.round=(step*2 evaluate save)" --set checkpoint.every_steps=0 \
    --set checkpoint.keep=10 --set train.evaluate_every=0
[ "$(grep -c eval_loss acted/metrics.jsonl)" -eq 3 ] || { cat acted/metrics.jsonl; fail "three evaluations"; }
for step in 2 4 6; do
    [ -d acted/checkpoints/step-0000000$step ] || { ls acted/checkpoints; fail "save of step $step"; }
done
[ ! -d acted/checkpoints/step-00000001 ] || { ls acted/checkpoints; fail "a save that nothing asked for"; }
refused "no program \"outer\"" $orrery check round.lua "${settings[@]}" --set "script.round=step outer"
[ -z "$long" ] || tee "$long" < resumed.txt
echo "1 passed, 0 failed"
