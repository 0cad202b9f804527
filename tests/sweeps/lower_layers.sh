#!/usr/bin/env bash
# A run whose older steps are in the lower layer of an overlay, or on another file system: two ranks resume, save twice
# and restore, with what a state has left there, under each policy, and one call is killed or fails. Afterwards every
# visible step is whole and what was committed is there; the next run is blocked by nothing, keeps what the policy says,
# and its newest step is the last one.
# usage: lower_layers.sh FOLDER_OF_PROGRAMS STRIDE SYSTEM...
#   of: overlay (its upper layer on tmpfs) overlay_ext4 overlay_xfs (its layers there) tmpfs ext4 xfs btrfs
# Every STRIDE-th call of each rank is hit. Needs root to mount; a system that cannot be mounted is skipped by name.
set -eu
programs=$1 stride=$2
shift 2
export ASAN_OPTIONS=detect_leaks=0
source "$(dirname "$0")/file_systems.sh"
where=start
fail() {
    echo "FAILED: $where ($(cat "$work/said" 2> /dev/null)): $1" >&2
    cat "$work/err" >&2
    exit 1
}
# restart SYSTEM: the run's folder as the state has it, at $place.
restart() {
    umount "$run" 2> /dev/null || true
    chattr -R -i "$disk" 2> /dev/null || true
    rm -rf "$disk"/*
    mkdir "$disk/lower" "$disk/upper" "$disk/work"
    cp -r "$work/start/ckpt" "$disk/lower/ckpt"
    case $1 in
    overlay*) mount -t overlay -o lowerdir="$disk/lower",upperdir="$disk/upper",workdir="$disk/work" overlay "$run" ;;
    *) mount --bind "$disk/lower" "$run" ;;
    esac
    [ "$state" != immutable ] || chattr -R +i "$run/ckpt/step-00000020"
    place=$run/ckpt
}
# prepare STATE: what is there before the run: steps 20 and 30, and what else the state says.
prepare() {
    rm -rf "$work/start"
    mkdir "$work/start"
    "$programs/sweep_saver" threads "$work/start/ckpt" 30 2> "$work/err"
    local ckpt=$work/start/ckpt
    case $1 in
    damaged) printf '\xff' | dd of="$(ls "$ckpt"/step-00000030/rank-00000-*.safetensors | head -n 1)" bs=1 seek=200 \
        conv=notrunc 2> /dev/null ;;
    suspect) echo "the loss of step 31 is nan" > "$ckpt/step-00000030/suspect.txt" ;;
    unfinished) cp -r "$ckpt/step-00000030" "$ckpt/step-00000040.partial"
        cp -r "$ckpt/step-00000030" "$ckpt/step-00000040.g1.partial"
        rm "$ckpt"/step-00000040*/manifest.json
        cp -r "$ckpt/step-00000020" "$ckpt/step-00000010"
        mv "$ckpt/step-00000010/manifest.json" "$ckpt/step-00000010/manifest.json.removed" ;;
    foreign) mkdir "$ckpt/step-00000040" && echo mine > "$ckpt/step-00000040/thesis.txt" ;;
    esac
}
saver() { timeout 60 "$programs/sweep_saver" "$@" 2>> "$work/err"; }
faults=0 mounted=0
table=()
for system in "$@"; do
    mount_disk "$system" > "$work/err" 2>&1 || { echo "$system skipped: $(tail -n 1 "$work/err")"; continue; }
    state=whole && prepare whole
    restart "$system" 2> "$work/err" || { echo "$system skipped: $(cat "$work/err")"; umount "$disk"; continue; }
    mounted=$((mounted + 1))
    for state in whole damaged suspect unfinished foreign immutable; do
        prepare $state
        if [ $state = immutable ] && ! restart "$system" 2> "$work/err"; then
            table+=("$system | $state | skipped: $(tail -n 1 "$work/err")")
            continue
        fi
        for every in 1000 20; do
            before=$faults
            for kind in none kill EIO ENOSPC EROFS EPERM EXDEV EBUSY ESTALE; do
                ranks="0 1"
                [ $stride -le 500 ] || ranks=$((faults % 2)) # the short form: one call of one rank
                for rank in $ranks; do
                    nth=$((1 + faults * 53 % (stride < 300 ? stride : 300)))
                    [ $kind != none ] || nth=0
                    while :; do
                        restart "$system"
                        rm -f "$work/said"
                        : > "$work/err"
                        where="$system, $state, every $every, rank $rank, call $nth, $kind"
                        code=0
                        SWEEP_EVERY=$every SWEEP_ROOT="$place" SWEEP_FAULT="$nth:$kind" SWEEP_SAID="$work/said" \
                            LD_PRELOAD="$programs/sweep_recorder.so" saver $rank "$place" 50 || code=$?
                        [ $code -le 1 ] || fail "exit code $code"
                        [ $kind != none ] || [ $code -eq 0 ] || fail "the run ends though nothing failed"
                        [ $kind = none ] || [ -s "$work/said" ] || break
                        faults=$((faults + 1))
                        [ $code -eq 0 ] || [ -s "$work/err" ] || fail "it failed silently"
                        SWEEP_EVERY=$every saver 2 "$place" 50 || fail "the next run"
                        count=2
                        [ $every -eq 1000 ] || count=3
                        [ $state != immutable ] || count=3
                        saver check "$place" 50 $count || fail "the check after it"
                        [ $state != foreign ] || find "$run" -name thesis.txt | grep -q . ||
                            fail "what others left is lost"
                        nth=$((nth + stride))
                        [ $kind != none ] || break
                    done
                done
            done
            policy="keep 2$([ $every -eq 1000 ] || echo ", every $every")"
            table+=("$system | $state | $policy | $((faults - before)) runs")
        done
    done
    umount "$run"
    chattr -R -i "$disk" 2> /dev/null || true
    umount "$disk"
done
[ $mounted -gt 0 ] || { echo "skipped: no file system could be mounted"; exit 77; }
printf '%s\n' "${table[@]}"
echo "$faults runs: nothing lost, nothing blocked"
