#!/usr/bin/env bash
# Where ranks may meet, and what the system refuses: IPv6, port 0, too few files, too little memory. What all ranks find
# is said once.
source "$(dirname "$0")/lib.sh"
for place in "127.0.0.1:0" "[::1]:0"; do
    [ "$place" != "[::1]:0" ] || [ -e /proc/net/if_inet6 ] || { echo "not tried: no IPv6 here"; continue; }
    run_tiny here 2 --rendezvous "$place" --fresh > here.log 2>&1 || { tail -5 here.log; fail "--rendezvous $place"; }
done

# The soft limit is raised; a hard one below what is needed is an error with both numbers, before a rank starts.
(ulimit -Sn 48 && run_tiny soft 2 > soft.log 2>&1) || { tail -5 soft.log; fail "a soft limit is not raised"; }
(ulimit -n 48 && run_tiny hard 2 > hard.log 2>&1) && fail "48 files are enough: no test"
grep -q "a rank of mesh dp=2 may need [0-9]* open files and sockets, the limit is 48 .*hard limit 48" hard.log ||
    { tail -5 hard.log; fail "the limit is not named"; }
grep -q "rank [01]" hard.log && { tail -5 hard.log; fail "ranks were started"; }

# No memory for a thread: what it is, and no mistake of Orrery's.
seen=
for kib in 30000 40000 50000 60000 70000 80000; do
    (ulimit -v $kib && run_tiny short 2 > short.log 2>&1) && continue
    grep -q "bug in Orrery" short.log && { tail -5 short.log; fail "ulimit -v is told as a mistake of Orrery's"; }
    ! grep -q "limited to .* (ulimit -v)" short.log || seen=yes
done
[ -n "$seen" ] || { tail -5 short.log; fail "no limit of memory was told: no test"; }

# mistaken DP DP: both ranks of a launcher that starts two find that theirs is none of its meshes.
mistaken() {
    local port first
    port=$(free_port)
    as_rank 0 2 "$port" "$orrery" run "$source_root/scripts/gpt.lua" --set mesh.dp="$1" > one.log 2>&1 &
    first=$!
    as_rank 1 2 "$port" "$orrery" run "$source_root/scripts/gpt.lua" --set mesh.dp="$2" > two.log 2>&1
    [ $? -eq 2 ] || { cat one.log two.log; fail "rank 1 does not end with 2"; }
    wait $first
    [ $? -eq 2 ] || { cat one.log two.log; fail "rank 0 does not end with 2"; }
}
# What all ranks of a launcher find is said once.
mistaken 3 3
[ "$(cat one.log two.log | grep -c 'dp=3 has 3 ranks, but torchrun started 2')" -eq 1 ] ||
    { cat one.log two.log; fail "two ranks say the same"; }
# Two different mistakes are both said.
mistaken 3 5
grep -q "dp=3 has 3 ranks, but torchrun started 2" one.log &&
    grep -q "dp=5 has 5 ranks, but torchrun started 2" two.log ||
    { cat one.log two.log; fail "one of two mistakes is not said"; }

# Threads of a team wait without spinning for long, unless the user has decided how they wait.
echo 'print(os.getenv "GOMP_SPINCOUNT" or "none", os.getenv "OMP_WAIT_POLICY" or "none")' > waits.lua
waits() {
    "$@" "$orrery" check waits.lua --set lua.allow='["os"]' 2>&1 | grep -m 1 -E "none|active" | tr '\t' ' '
}
said=$(waits env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY)
[ "$said" = "1000 none" ] || fail "threads spin: $said"
[ "$(waits env -u OMP_WAIT_POLICY GOMP_SPINCOUNT=7)" = "7 none" ] &&
    [ "$(waits env -u GOMP_SPINCOUNT OMP_WAIT_POLICY=active)" = "none active" ] ||
    fail "what the user has set is not kept"

# Inside a Slurm job of several nodes only this one is used: that is said.
SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 run_tiny batch 2 > batch.log 2>&1 ||
    { tail -5 batch.log; fail "in a batch script"; }
grep -q "Slurm job 7 has 2 nodes, but the ranks start on this node alone" batch.log || fail "idle nodes are not named"
echo "1 passed, 0 failed"
