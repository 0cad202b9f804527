#!/usr/bin/env bash
# Gradients sent as bf16: half the bytes, as many messages, verified; a run is resumed bit for bit, and also without.
source "$(dirname "$0")/lib.sh"
gpt=$source_root/scripts/gpt.lua
# One learning rate: how long a run is to be makes no difference.
narrow=(--set script.codec=bf16 --set script.zero=2 --set train.microbatches=2 --set script.floor=1)

sizes=(--set mesh.dp=2 --set data.path=text.txt --set data.tokens_per_sequence=32
    --set train.sequences_per_step=4 --set train.steps=4
    --set script.layers=2 --set script.embed=48 --set script.heads=3)
$orrery check "$gpt" "${sizes[@]}" --set script.zero=2 --set train.microbatches=2 > wide.txt 2>&1 ||
    { cat wide.txt; fail "check with f32"; }
$orrery check "$gpt" "${sizes[@]}" "${narrow[@]}" > narrow.txt 2>&1 || { cat narrow.txt; fail "check with bf16"; }
grep reduce_scatter wide.txt > w.txt && grep reduce_scatter narrow.txt > n.txt || fail "check lists no reduce_scatter"
cmp -s w.txt n.txt && { cat n.txt; fail "bf16 sends what f32 does"; }
$orrery verify "$gpt" "${sizes[@]}" "${narrow[@]}" > verified.log 2>&1 ||
    { cat verified.log; fail "a right job does not pass"; }
grep -q "gradients are sent as bf16 over dp: the tolerance includes the rounding of terms of sums" verified.log ||
    { cat verified.log; fail "verify does not say what it judges by"; }

run_tiny whole 20 "${narrow[@]}" > whole.log 2>&1 || { cat whole.log; fail "the uninterrupted run"; }
run_tiny parts 10 "${narrow[@]}" > first.log 2>&1 ||
    { cat first.log; fail "the first part"; }
cp -r parts other
run_tiny parts 20 "${narrow[@]}" > second.log 2>&1 || { cat second.log; fail "the second part"; }
losses whole > whole.txt
losses parts > parts.txt
cmp whole.txt parts.txt || fail "another trajectory after resuming"
run_tiny other 20 --set script.zero=1 --set script.floor=1 > other.log 2>&1 ||
    { cat other.log; fail "resumed with f32"; }
grep -q "resumed from step 10" other.log || { cat other.log; fail "f32 did not resume"; }
losses other > other.txt
head -10 whole.txt | cmp - <(head -10 other.txt) || fail "the first steps are not kept"
cmp -s whole.txt other.txt && fail "f32 gives the bits of bf16"
echo "1 passed, 0 failed"
