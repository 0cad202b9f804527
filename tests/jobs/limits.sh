#!/usr/bin/env bash
# In a control group with a CPU quota and a memory limit, of cgroup v1 or v2, both count as the machine's.
source "$(dirname "$0")/lib.sh"
gpt=$source_root/scripts/gpt.lua

# groups_in ROOT...: makes a group in each folder, or says that there is none to make.
made=()
leave() {
    local group
    for group in "${made[@]}"; do rmdir "$group" 2> /dev/null; done
}
trap 'leave; rm -rf "$work"' EXIT
make_group() {
    local group=$1/orrery-limits-$$
    mkdir "$group" 2> /dev/null || return 1
    made+=("$group")
}
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    echo "+cpu +memory" > /sys/fs/cgroup/cgroup.subtree_control 2> /dev/null
    make_group /sys/fs/cgroup
    cpu=${made[0]:-} memory=${made[0]:-} quota=cpu.max limit=memory.max
    half="50000 100000"
else
    make_group /sys/fs/cgroup/cpu && make_group /sys/fs/cgroup/memory
    cpu=${made[0]:-} memory=${made[1]:-} quota=cpu.cfs_quota_us limit=memory.limit_in_bytes
    half=50000
fi
{ [ -n "$memory" ] && echo "$half" > "$cpu/$quota" && echo 256M > "$memory/$limit"; } 2> /dev/null || {
    echo "skipped: no control groups of processors and memory can be made here"
    exit 77
}

# inside COMMAND...: in both groups.
inside() { bash -c 'echo $$ > "$0/cgroup.procs"; echo $$ > "$1/cgroup.procs"; shift; exec "$@"' "$cpu" "$memory" "$@"; }
tiny=(--set mesh.dp=1 --set train.steps=2 --set data.path=text.txt --set data.tokens_per_sequence=32
    --set train.sequences_per_step=4 --set script.layers=2 --set script.embed=48 --set script.heads=3)

exits 0 check inside "$orrery" check "$gpt" "${tiny[@]}"
for word in "the CPU quota in $cpu/$quota allows 0.5 of $(nproc) processor" ": each rank has one thread by default, w" \
    "; 256.0 MiB of " " by the memory limit $memory/$limit"; do
    grep -qF "$word" check.txt || { cat check.txt; fail "check does not say $word"; }
done
exits 0 free "$orrery" check "$gpt" "${tiny[@]}"
! grep -q "quota\|memory limit" free.txt || { cat free.txt; fail "check names limits where there are none"; }
# A plan that does not fit is reported.
exits 0 large inside "$orrery" check "$gpt" "${tiny[@]}" --set script.embed=1536
grep -q "too little for its ranks: " large.txt || { cat large.txt; fail "check does not say that they do not fit"; }

# A run says it once, has one thread for each rank, and is refused what it cannot have before the kernel kills it.
tiny_exec=inside run_tiny run 2 > run.log 2>&1 || { cat run.log; fail "a run with half a processor"; }
[ "$(grep -c "the CPU quota in" run.log)" -eq 1 ] || { cat run.log; fail "the quota is not said once"; }
tiny_exec=inside run_tiny refused 2 --set mesh.dp=1 --set script.embed=1536 > refused.log 2>&1
code=$?
[ $code -eq 1 ] || { cat refused.log; fail "a run beyond the memory limit: exit code $code"; }
grep -q "cannot allocate [0-9]* bytes: out of memory; [0-9]* bytes are left by the limit $memory/$limit" refused.log ||
    { cat refused.log; fail "the memory limit is not named"; }
echo "1 passed, 0 failed"
