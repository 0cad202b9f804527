#!/usr/bin/env bash
# Each rank process has processors of its own, where there are enough; run.pin_ranks = false leaves them all to all.
source "$(dirname "$0")/lib.sh"
if [ "$(nproc)" -lt 2 ]; then
    echo "skipped: one processor cannot be shared out"
    exit 77
fi
allowed() { awk '/^Cpus_allowed_list/ { print $2 }' "/proc/$1/status"; }
two_ranks() { [ "$(pgrep -P "$1" | wc -l)" -eq 2 ]; }

# allowed_to_ranks FOLDER [arguments]: starts a run, prints what its launcher and its two ranks may run on, and ends it.
allowed_to_ranks() {
    local folder=$1 pid
    shift
    tiny_exec=exec run_tiny "$folder" 100000 "$@" > "$folder.log" 2>&1 &
    local launcher=$!
    wait_for steps_done "$folder" 1 || { cat "$folder.log" >&2; fail "$folder: no step"; }
    two_ranks $launcher || fail "$folder: not two ranks"
    allowed $launcher
    for pid in $(pgrep -P $launcher); do allowed "$pid"; done
    kill -TERM $launcher
    wait $launcher
}
mapfile -t pinned < <(allowed_to_ranks pinned)
mapfile -t free < <(allowed_to_ranks free --set run.pin_ranks=false)
mapfile -t many < <(allowed_to_ranks many --set run.threads_per_rank="$(nproc)")
echo "launcher ${pinned[0]}, ranks ${pinned[1]} and ${pinned[2]}; unpinned ${free[1]} and ${free[2]}"
mine=$(allowed self)
[ "${pinned[0]}" = "$mine" ] || fail "the launcher may run on ${pinned[0]}, not on $mine"
[ -n "${pinned[2]}" ] && [ "${pinned[1]}" != "${pinned[2]}" ] || fail "both ranks may run on ${pinned[1]}"
[ "${pinned[1]}" != "$mine" ] || fail "a rank may run everywhere"
[ "${free[1]} ${free[2]}" = "$mine $mine" ] || fail "unpinned ranks may run on ${free[1]} and ${free[2]}, not on $mine"
[ "${many[1]} ${many[2]}" = "$mine $mine" ] || fail "too many threads, but pinned: ${many[1]} and ${many[2]}"

# Ranks that another launcher started take the same places, unless a process above them may run elsewhere.
bound() {
    local pid=$$ own
    own=$(allowed $$)
    while [ "$pid" -gt 0 ]; do
        [ "$(allowed "$pid")" = "$own" ] || return 0
        pid=$(awk '/^PPid/ { print $2 }' "/proc/$pid/status")
    done
    return 1
}
# allowed_to_own_ranks FOLDER [PREFIX]...: as allowed_to_ranks, for two ranks in torchrun's environment.
allowed_to_own_ranks() {
    local folder=$1 port rank ranks=()
    shift
    port=$(free_port)
    for rank in 0 1; do
        tiny_exec="exec $* env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1
            MASTER_PORT=$port ORRERY_TOKEN=a-secret-of-this-test" run_tiny "$folder" 100000 > "$folder.$rank.log" 2>&1 &
        ranks+=($!)
    done
    wait_for steps_done "$folder" 1 || { cat "$folder".?.log >&2; fail "$folder: no step"; }
    allowed "${ranks[0]}"
    allowed "${ranks[1]}"
    kill -TERM "${ranks[@]}"
    wait
}
if bound; then
    echo "skipped: ranks of another launcher: a process above this one may run on other processors"
else
    mapfile -t own < <(allowed_to_own_ranks own)
    [ "${own[*]}" = "${pinned[*]:1}" ] || fail "ranks of torchrun may run on ${own[*]}, not on ${pinned[*]:1}"
fi
if [ "$(nproc)" -gt 2 ]; then
    mapfile -t own < <(allowed_to_own_ranks bound taskset -c 0,1)
    [ "${own[*]}" = "0-1 0-1" ] || fail "bound ranks of torchrun may run on ${own[*]}, not on 0-1"
fi

# The bench's ranks, too, stay where this process may run.
last=${mine##*[-,]}
taskset -c "$last" "$orrery" bench all_reduce -b 1K -e 1K -n 100000000 --transport shm --ranks 1 > bench.log 2>&1 &
bench=$!
one_rank() { [ "$(pgrep -P $bench | wc -l)" -eq 1 ]; }
strayed() { [ "$(allowed "$(pgrep -P $bench)")" != "$last" ]; }
wait_for one_rank || { cat bench.log; fail "bench: no rank"; }
for _ in $(seq 20); do
    strayed && fail "bench: a rank runs on $(allowed "$(pgrep -P $bench)"), not on $last"
    sleep 0.05
done
kill -TERM $bench
wait $bench
echo "1 passed, 0 failed"
