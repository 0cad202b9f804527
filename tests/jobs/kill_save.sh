#!/usr/bin/env bash
# SIGKILL at 12 points of a save beside the steps, of either rank: the other rank ends and says why, what is committed
# can be read, and the resumed run has the losses and gradient norms of the uninterrupted one, bit for bit.
source "$(dirname "$0")/lib.sh"
command -v strace > /dev/null || { echo "skipped: strace is not installed"; exit 77; }
strace -o /dev/null true 2> /dev/null || { echo "skipped: this machine does not allow ptrace"; exit 77; }
export ASAN_OPTIONS=detect_leaks=0  # the leak checker cannot run under strace
steps=80
settings=(--set train.evaluate_every=0 --set train.evaluate_batches=1 --set run.threads_per_rank=1 --set script.zero=1
    --set checkpoint.every_steps=20)
calls=mkdirat,openat,write,pwrite64,writev,pwritev,sendto,fsync,fdatasync,linkat,renameat2,unlinkat,pread64,read
run_tiny whole $steps "${settings[@]}" > whole.log 2>&1 || { cat whole.log; fail "the uninterrupted run"; }
grep -q "checkpoints are saved asynchronously, from a copy of" whole.log ||
    { cat whole.log; fail "saves hold the steps"; }
losses whole > whole.txt
[ "$(wc -l < whole.txt)" -eq $steps ] || fail "the uninterrupted run has $(wc -l < whole.txt) of $steps step lines"

# The save thread of the rank's process: it is there before the first step.
save_thread() {
    tid=$(grep -lsx orrery-save /proc/"$1"/task/*/comm | head -1 | cut -d/ -f5)
    [ -n "$tid" ]
}

# traced NAME RANK STEPS [STRACE ARGUMENTS]: a run whose save thread of that rank, and nothing else, is under strace.
# Its exit code: code.
traced() {
    local name=$1 rank=$2 until=$3 launcher tracer
    shift 3
    tiny_exec=exec run_tiny "$name" "$until" "${settings[@]}" > "$name.log" 2>&1 &
    launcher=$!
    wait_for two_ranks $launcher || { cat "$name.log"; fail "$name: the ranks did not start"; }
    victim=$(ranks_of $launcher | sed -n "$((rank + 1))p")
    wait_for save_thread "$victim" || { cat "$name.log"; fail "$name: there is no save thread"; }
    strace -qq -o "$name.trace" -p "$tid" -e trace=$calls "$@" 2> "$name.strace" &
    tracer=$!
    wait $launcher
    code=$?
    wait $tracer
}

# 12 calls of a whole save, as strace injects them, CALL:when=N: where the kind of call changes as far as that happens
# often enough, else evenly. Every other one is of the next save, which leaves a checkpoint to go on from.
points_of() {
    awk '
        { call = $0; sub(/\(.*/, "", call); sub(/^[0-9]+ +/, "", call) }
        call !~ /^[a-z0-9]+$/ { next }
        { n[call]++; every[++all] = call; nth[all] = n[call] }
        call != last { turns[++changes] = all; last = call }
        END {
            for (i = 0; i < 12; ++i) {
                k = changes >= 12 ? turns[1 + int(i * (changes - 1) / 11)] : 1 + int(i * (all - 1) / 11)
                print every[k] ":when=" nth[k] + (i % 2) * n[every[k]]
            }
        }' "$1"
}

killed=0
for rank in 0 1; do
    # A run may be through before strace has its thread.
    for try in 1 2 3 4 5; do
        rm -rf "seen$rank" "seen$rank".*
        traced "seen$rank" $rank 20  # no step is left for a second save, and the last one is awaited
        [ $code -eq 0 ] || { cat "seen$rank.log"; fail "the run that is looked at: exit code $code"; }
        points=$(points_of "seen$rank.trace")
        [ "$(echo "$points" | sort -u | grep -c :)" -ne 12 ] || break
    done
    [ "$(echo "$points" | sort -u | grep -c :)" -eq 12 ] || fail "rank $rank: not 12 points: $points"
    for point in $points; do
        name=rank$rank.$((++killed))
        # Nor may it have counted so far.
        for try in 1 2 3 4 5; do
            rm -rf "$name" "$name".*
            traced "$name" $rank $steps -e "inject=${point%%:*}:signal=KILL:${point#*:}"
            [ $code -eq 0 ] && ! grep -q "killed by SIGKILL" "$name.trace" || break
        done
        [ $code -eq 1 ] || { cat "$name.log"; fail "$name: exit code $code, killed at $point"; }
        grep -q "rank $rank (pid $victim) was killed by signal 9" "$name.log" ||
            { cat "$name.log"; fail "$name: the dead rank is not named, killed at $point"; }
        run_tiny "$name" $steps "${settings[@]}" > "$name.resumed.log" 2>&1 ||
            { cat "$name.resumed.log"; fail "$name: the resumed run, killed at $point"; }
        losses "$name" > "$name.txt"
        cmp -s whole.txt "$name.txt" ||
            { diff whole.txt "$name.txt" | head -6; fail "$name: another trajectory, killed at $point"; }
        echo "rank $rank killed at $point: $(grep -m1 "resumed from" "$name.resumed.log" || echo "began anew")"
        rm -rf "$name" "$name".*
    done
done
[ $killed -eq 24 ] || fail "$killed kills, expected 24"
echo "$killed of 24 resumed bit for bit"
echo "1 passed, 0 failed"
