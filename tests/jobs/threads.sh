#!/usr/bin/env bash
# Whole jobs whose ranks are threads of one process, which is how ThreadSanitizer sees training: dp 2 with evaluation
# and checkpoints, the same in two parts and with collectives on threads of their own, a batch that grows, and dp 2 by
# tp 2 with split optimizer states.
source "$(dirname "$0")/lib.sh"
threads=(--set run.transport=threads --set run.threads_per_rank=1 --set device.cpu.reference=true
    --set train.evaluate_every=4 --set checkpoint.every_steps=3)
run_tiny whole 8 "${threads[@]}" > whole.log 2>&1 || { cat whole.log; fail "dp 2"; }
[ "$(losses whole | wc -l)" -eq 8 ] || { cat whole.log; fail "not 8 steps"; }
grep -q eval_loss whole/metrics.jsonl || { cat whole.log; fail "no evaluation"; }

run_tiny parts 5 "${threads[@]}" > first.log 2>&1 || { cat first.log; fail "the first 5 steps"; }
run_tiny parts 8 "${threads[@]}" > second.log 2>&1 || { cat second.log; fail "the last 3 steps"; }
grep -q "resumed from step 5" second.log || { cat second.log; fail "it did not resume"; }

run_tiny beside 8 "${threads[@]}" --set run.overlap=on > beside.log 2>&1 || { cat beside.log; fail "overlap"; }
grep -q "run on a separate thread" beside.log || { cat beside.log; fail "run.overlap = on is not done"; }
losses beside > beside.txt
losses whole | cmp - beside.txt || fail "run.overlap = on changed the losses"

# Each size of a ramp is compiled beside the steps of the one before it, by the script's functions.
run_tiny ramp 9 "${threads[@]}" --set train.sequences_per_step=8 --set train.ramp_start=2 --set train.ramp_increment=2 \
    --set train.ramp_samples=12 > ramp.log 2>&1 || { cat ramp.log; fail "a ramp"; }
[ "$(losses ramp | wc -l)" -eq 9 ] || { cat ramp.log; fail "a ramp: not 9 steps"; }

run_tiny square 3 "${threads[@]}" --set mesh.tp=2 --set script.heads=4 --set script.zero=1 > square.log 2>&1 ||
    { cat square.log; fail "dp 2 by tp 2"; }
[ "$(losses square | wc -l)" -eq 3 ] || { cat square.log; fail "dp 2 by tp 2: not 3 steps"; }
echo "1 passed, 0 failed"
