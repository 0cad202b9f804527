#!/usr/bin/env bash
# Changing run.transport or run.overlap alone changes no bit: same losses, same final checkpoint, over threads, shm and
# gloo.
source "$(dirname "$0")/lib.sh"
for transport in threads shm gloo; do
    run_tiny $transport 10 --set run.transport=$transport --set run.threads_per_rank=1 > $transport.log 2>&1 ||
        { cat $transport.log; fail "$transport"; }
    losses $transport > $transport.txt
    [ "$(wc -l < $transport.txt)" -eq 10 ] || { cat $transport.log; fail "$transport: not 10 steps"; }
    (cd $transport/checkpoints/step-00000010 && sha256sum ./*.safetensors) > $transport.sums
    grep -q safetensors $transport.sums || fail "$transport: no checkpoint"
done
for transport in shm gloo; do
    cmp threads.txt $transport.txt || fail "$transport: other losses than threads"
    cmp threads.sums $transport.sums || { diff threads.sums $transport.sums; fail "$transport: another checkpoint"; }
done
# Collectives beside the backward pass on a thread of their own: the same bits.
for transport in shm gloo; do
    run_tiny beside_$transport 10 --set run.transport=$transport --set run.threads_per_rank=1 --set run.overlap=on \
        > beside.log 2>&1 || { cat beside.log; fail "$transport with run.overlap = on"; }
    grep -q "run on a separate thread" beside.log ||
        { cat beside.log; fail "$transport: run.overlap = on is not done"; }
    losses beside_$transport | cmp threads.txt - || fail "$transport: other losses with run.overlap = on"
    (cd beside_$transport/checkpoints/step-00000010 && sha256sum ./*.safetensors) | cmp threads.sums - ||
        fail "$transport: another checkpoint with run.overlap = on"
done
# The test can fail: another seed gives other bits.
run_tiny other 10 --set run.transport=threads --set run.threads_per_rank=1 --set run.seed=6 > other.log 2>&1 ||
    { cat other.log; fail "another seed"; }
losses other | cmp -s - threads.txt && fail "another seed gave the same losses"
echo "1 passed, 0 failed"
