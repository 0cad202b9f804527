#!/usr/bin/env bash
# Products of 8-bit operands: checked, drawn and printed here; run, verify and sample refuse them and say what to do.
source "$(dirname "$0")/lib.sh"
gpt=$source_root/scripts/gpt.lua
sizes=(--set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=4
    --set script.layers=2 --set script.embed=48 --set script.heads=3 --set run.folder=run)
low=(--set train.precision=fp8)

for mesh in "" "mesh.tp=2 script.heads=4 script.embed=64" "mesh.dp=2 script.zero=3 train.microbatches=2" \
    "mesh.pp=2 train.microbatches=2"; do
    sets=()
    for set in $mesh; do sets+=(--set "$set"); done
    $orrery check "$gpt" "${sizes[@]}" "${low[@]}" "${sets[@]}" > check.txt 2>&1 ||
        { cat check.txt; fail "check does not take fp8 on $mesh"; }
    grep -q "no run here: device cpu does not support fp8 matrix products" check.txt ||
        { cat check.txt; fail "check does not say that it cannot be run"; }
    grep -q "checked: the plan is complete" check.txt || { cat check.txt; fail "not checked on $mesh"; }
done
$orrery check "$gpt" "${sizes[@]}" "${low[@]}" --print plan > plan.txt 2>&1 || { cat plan.txt; fail "no plan"; }
for kernel in quantize matmul_quantized matmul_dw_quantized f8e4m3 f8e5m2; do
    grep -q $kernel plan.txt || { cat plan.txt; fail "the plan has no $kernel"; }
done
$orrery draw "$gpt" "${sizes[@]}" "${low[@]}" -o gpt.svg > draw.txt 2>&1 || { cat draw.txt; fail "draw"; }

for command in run verify sample; do
    $orrery $command "$gpt" "${sizes[@]}" "${low[@]}" > refused.txt 2>&1
    [ $? -eq 2 ] || { cat refused.txt; fail "$command: expected exit code 2"; }
    for word in '--set train.precision=fp8' 'precision "fp8": device cpu does not support fp8 matrix products' \
        'orrery check' 'train.precision = "bf16"'; do
        grep -qF -- "$word" refused.txt || { cat refused.txt; fail "$command: no \"$word\""; }
    done
    [ ! -e run/checkpoints ] || fail "$command wrote checkpoints"
done
$orrery run "$gpt" "${sizes[@]}" "${low[@]}" --set mesh.dp=2 > refused.txt 2>&1
[ $? -eq 2 ] || { cat refused.txt; fail "two ranks: expected exit code 2"; }
echo "1 passed, 0 failed"
