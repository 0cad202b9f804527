#!/usr/bin/env bash
# Experts whose steps run again with more slots where choices find none: the run follows the one with slots for all, bit
# by bit, reaches the largest capacity and says so beyond it, and resumes exactly where it was killed in such a step.
source "$(dirname "$0")/lib.sh"

# From step `pull` on, all tokens of a row choose experts 3 and 5.
cat > again.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { overflow = "again", capacity = 1.0, max_capacity = 4.0, pull = 1000, mixed = false }
local data = o.data.text {}
local again = opt.overflow == "again"
local program = o.trace("again", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "tokens", { "vocab", data.vocab }, { "embed", 24 })
  local late = o.step():greater_equal(opt.pull):select(o.constant(8), o.constant(0))
  local expert = o.iota { shape = { { "router", 8 } }, dim = "router" }
  local pulled = late * (expert:equal(3):select(o.constant(1), o.constant(0)) +
                         expert:equal(5):select(o.constant(1), o.constant(0)))
  for layer = 1, 2 do
    local few = opt.mixed and layer == 2                      -- other experts, and other capacities: 1.1, 1.25, 1.5
    x = x + nn.scope("layer" .. layer, nn.moe, nn.layernorm(x, "ln" .. layer), {
      experts = few and 3 or 8, top_k = 2, mlp = 16, std = 0.3, parts = 2, correction = not few and pulled or nil,
      overflow = opt.overflow, capacity = few and again and 1.1 or opt.capacity,
      max_capacity = again and opt.max_capacity or nil })
  end
  return nn.linear(x, "head", { "vocab", data.vocab }):cross_entropy(batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-2, decay = 0 })
program:parallel {
  o.strategy.expert {}, o.strategy.tensor { axis = "tp" }, o.strategy.data { axis = { "dp", "ep" } },
}
local run = program:compile()
print(run:summary())
run:train(data)
LUA
settings=(again.lua --set data.path=text.txt --set data.tokens_per_sequence=32 --set data.validation=0.1
    --set train.sequences_per_step=4 --set train.steps=24 --set train.evaluate_every=12 --set train.evaluate_batches=2
    --set checkpoint.every_steps=10 --set checkpoint.keep=10 --set checkpoint.async=false --set run.timeout_s=20)
full=(--set script.overflow=drop --set script.capacity=4)
last() { grep -v eval_loss "$1/metrics.jsonl" | tail -1 | sed -E "s/.*\"$2\":([^,}]+).*/\1/"; }
values() {  # values NAME KEY: one line a step, or evaluation
    sed -nE "s/.*\"$2\":([^,}]+).*/\1/p" "$1/metrics.jsonl" | nl
    grep -q "\"$2\"" "$1/metrics.jsonl" || echo "$1 lacks $2"
}
ran_again() { [ "$(last "$1" again)" -gt 0 ] || { cat "$1.log"; fail "$1: no step ran again"; }; }

# Bit by bit on reference kernels, in f32 and with the loss scale of f16; 1e-6 on others, on any mesh.
for precision in f32 f16; do
    how=(--set device.cpu.reference=true --set train.precision=$precision)
    trained_in full_$precision "${settings[@]}" "${full[@]}" "${how[@]}"
    trained_in again_$precision "${settings[@]}" "${how[@]}"
    ran_again again_$precision
    for key in loss grad_norm eval_loss; do
        cmp <(values full_$precision $key) <(values again_$precision $key) ||
            fail "$precision: another $key than with slots for all"
    done
done
# Two kinds of mixtures run again together, with the capacities of both.
how=(--set device.cpu.reference=true --set script.mixed=true)
trained_in full_mixed "${settings[@]}" "${full[@]}" "${how[@]}"
trained_in mixed "${settings[@]}" "${how[@]}"
ran_again mixed
for key in loss grad_norm eval_loss; do
    cmp <(values full_mixed $key) <(values mixed $key) || fail "mixed: another $key than with slots for all"
done
grep -q "capacity: train steps of 7 capacities compiled in" mixed.log ||
    { cat mixed.log; fail "the capacities of both"; }
grep -q "capacity: train steps of 6 capacities compiled in" again_f32.log ||
    { cat again_f32.log; fail "the capacities"; }
grep -Eq "capacity: 1 \(.* of scratch\), 1.25 \(.*\), 1.5 \(.*\), 2 \(.*\), 3 \(.*\), 4 \(.*\)" again_f32.log ||
    { cat again_f32.log; fail "the memory of each capacity"; }
grep -q "step 1 overflows capacity 1: it runs again with 1.25" again_f32.log || { cat again_f32.log; fail "the line"; }
while read -r name sets; do
    # shellcheck disable=SC2086
    trained_in "full_$name" "${settings[@]}" "${full[@]}" $sets
    # shellcheck disable=SC2086
    trained_in "$name" "${settings[@]}" $sets
    ran_again "$name"
    paste <(losses "full_$name") <(losses "$name") |
        awk '{ d = $2 - $5; if (d < 0) d = -d; if (d > 1e-6 * $2) { print; exit 1 } }' ||
        fail "$name does not follow the run with slots for all"
done << 'END'
one
dp --set mesh.dp=2 --set train.microbatches=2
END

# Saved in step 10 with a larger capacity than the first, on another mesh from there on, on one rank from step 15: the
# capacities and the repeated steps are those of the run that was not moved.
trained_in still "${settings[@]}" --set mesh.ep=4
values still capacity | awk '$1 == 10 { exit !($2 > 1) }' || fail "step 10 still has the smallest capacity"
trained_in moved "${settings[@]}" --set mesh.ep=4 --set train.steps=10
trained_in moved "${settings[@]}" --set mesh.ep=2 --set mesh.tp=2 --set train.steps=15
trained_in moved "${settings[@]}"
[ "$(grep -c "resumed from step 15" moved.log)" -eq 1 ] || { cat moved.log; fail "it did not resume from step 15"; }
for key in capacity again; do
    cmp <(values still $key) <(values moved $key) ||
        { paste <(values still $key) <(values moved $key); fail "another $key on other meshes"; }
done
paste <(losses still) <(losses moved) |
    awk '{ d = $2 - $5; if (d < 0) d = -d; if (d > 1e-5 * $2) { print; exit 1 } }' || fail "other losses when moved"

# All tokens to two experts: the last capacity, from that step on; a smaller one is left with layer, expert and load.
trained_in pulled "${settings[@]}" --set script.pull=13
[ "$(values pulled capacity | awk '$1 >= 13 && $2 != 4.0' | wc -l)" -eq 0 ] || fail "not the last capacity"
! $orrery run "${settings[@]}" --set run.folder=beyond --set script.pull=13 --set script.max_capacity=3 \
    --set mesh.dp=2 > beyond.log 2>&1 || fail "it trains beyond the largest capacity"
words='step 13 overflows the largest capacity, 3: expert 3 of layer1 has a load of 16, 12 fit; no param was changed'
missing=$(missing_word "$words" "$(cat beyond.log)")
[ -z "$missing" ] || { cat beyond.log; fail "the message lacks \"$missing\""; }

# Killed in step 13, which runs again: it resumes from step 12 with the losses and the state of the run above.
for _ in {1..20}; do  # where it was faster than kill, once more
    rm -rf killed
    trained_in killed "${settings[@]}" --set script.pull=13 --set train.steps=12
    (
        echo "$BASHPID" > killed.pid
        exec nice -n 19 $orrery run "${settings[@]}" --set run.folder=killed --set script.pull=13
    ) 2>&1 | (grep -q "step 13 overflows" && kill -9 "$(< killed.pid)")
    [ "${PIPESTATUS[0]}" -eq 137 ] && [ "$(last killed step)" = 12 ] && break
done
[ "$(last killed step)" = 12 ] || fail "it was never killed in step 13"
trained_in killed "${settings[@]}" --set script.pull=13
grep -q "resumed from step 12" killed.log || { cat killed.log; fail "it did not resume from step 12"; }
for key in loss grad_norm capacity again eval_loss; do
    cmp <(values pulled $key) <(values killed $key) || fail "another $key after the kill"
done
for file in pulled/checkpoints/step-00000024/*.safetensors; do
    cmp "$file" "killed/checkpoints/step-00000024/$(basename "$file")" || fail "another state after the kill"
done

# check proves the largest and the smallest.
$orrery check "${settings[@]}" > check.log 2>&1 || { cat check.log; fail "check"; }
grep -Eq "capacity: 1 \(.* of scratch\), 4 \(" check.log || { cat check.log; fail "the capacities that check proves"; }
echo "1 passed, 0 failed"
