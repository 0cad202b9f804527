#!/usr/bin/env bash
# A whole job on a device whose memory is not the host's (tests/apart): initial weights, batches, losses, checkpoints,
# resuming, staged messages and sampling go by way of its copies, and give what the CPU gives, bit for bit.
source "$(dirname "$0")/lib.sh"
plugins=$(dirname "$orrery")/tests/apart_plugins
[ -e "$plugins/liborrery_device_apart.so" ] || { echo "skipped: device apart is not built"; exit 77; }
apart() { run_tiny "$@" --set "plugins.path=[\"$plugins\"]" --set run.device=apart; }

one() { "$@" --set mesh.dp=1 --set run.threads_per_rank=1; }
two() { "$@" --set run.transport=gloo --set run.threads_per_rank=1; }
for steps in 10 20; do
    one run_tiny cpu1 $steps --set checkpoint.every_steps=5 > cpu1.log 2>&1 ||
        { cat cpu1.log; fail "no job on the CPU"; }
done
two run_tiny cpu2 20 > cpu2.log 2>&1 || { cat cpu2.log; fail "no job of two ranks on the CPU"; }

same() {
    losses "$1" > "$1.txt"
    [ "$(wc -l < "$1.txt")" -eq 20 ] || fail "$1: no 20 step lines"
    losses "$2" | cmp - "$1.txt" || { losses "$2" | diff - "$1.txt" | head -4; fail "$1: other losses than $2"; }
    echo "$1: 20 steps with the losses of $2, bit for bit"
}
# Ten steps, and ten more from the checkpoint.
one apart one 10 --set checkpoint.every_steps=5 > one.log 2>&1 || { cat one.log; fail "no job on the device"; }
grep -q "the step is captured" one.log || { cat one.log; fail "the step is not captured"; }
[ "$(grep -c "^  kernel matmul ([0-9]*): own kernel: there is no library here" one.log)" -eq 1 ] ||
    { cat one.log; fail "nothing says whose kernels run"; }
one apart one 20 --set checkpoint.every_steps=5 > again.log 2>&1 || { cat again.log; fail "no second start"; }
grep -q "resumed from step 10" again.log || { cat again.log; fail "the second start did not resume"; }

same one cpu1
for folder in one cpu1; do
    $orrery sample $folder --prompt "3 plus" --tokens 40 --temperature 0 > $folder.text 2>&1 ||
        { cat $folder.text; fail "$folder: no sample"; }
done
[ "$(grep "^3 plus" one.text)" = "$(grep "^3 plus" cpu1.text)" ] || fail "another text than the CPU's"
grep -q "^3 plus" one.text || fail "no text was drawn"
echo "one: 40 characters drawn like the CPU's"

two apart two 20 > two.log 2>&1 || { cat two.log; fail "no job of two ranks on the device"; }
grep -q "the step is not captured.*its transport needs calls of the host" two.log ||
    { cat two.log; fail "nothing says why the step is not captured"; }
same two cpu2

# A memory that no transport of the job reaches.
run_tiny none 5 --set "plugins.path=[\"$plugins\"]" --set run.device=apart --set run.transport=shm > none.log 2>&1
[ $? -eq 2 ] || { cat none.log; fail "shm was taken for memory that it cannot reach"; }
grep -q 'transport "shm" supports the memory of cpu, not that of device "apart"' none.log ||
    { cat none.log; fail "the refusal does not say why"; }
echo "shm: refused"
