#!/usr/bin/env bash
# Cuts the power of a run on a file system of its own: at a moment drawn at random the ranks are stopped, the image is
# read until two readings are equal, and the copy is mounted: whatever was acknowledged is there and whole. It tests the
# file system and its cache, not a disk's cache: what the system has handed to the image counts as written. As a
# counter-test a run without fsync must lose something.
# usage: power_cuts.sh FOLDER_OF_PROGRAMS CUTS SYSTEM...      of: ordered writeback xfs btrfs
# needs root, loop devices and mkfs of the system (scripts/setup --engines); one that is missing is skipped by name
set -eu
programs=$1 cuts=$2
shift 2
export ASAN_OPTIONS=detect_leaks=0
[ "$(id -u)" -eq 0 ] || { echo "skipped: it needs root to mount file systems"; exit 77; }
work=$(mktemp -d)
live=$work/live after=$work/after
mkdir "$live" "$after"
leave() {
    { kill -9 -- -"${saver:-0}" || true; umount "$after"; umount "$live"; } > /dev/null 2>&1 || true
    rm -rf "$work"
}
trap leave EXIT

# What has been killed lets go of its files a moment later.
unmount() {
    for _ in $(seq 200); do umount "$1" 2> /dev/null && return 0; sleep 0.02; done
    return 1
}

# make SYSTEM: an empty image; mount options are left in $options.
make() {
    options=loop
    rm -f "$work/disk"
    case $1 in
    ordered) truncate -s 64M "$work/disk" && mkfs.ext4 -q "$work/disk" && options=loop,data=ordered ;;
    writeback) truncate -s 64M "$work/disk" && mkfs.ext4 -q "$work/disk" && options=loop,data=writeback ;;
    xfs) truncate -s 300M "$work/disk" && mkfs.xfs -q "$work/disk" && options=loop,nouuid ;;
    btrfs) truncate -s 128M "$work/disk" && mkfs.btrfs -q "$work/disk" > /dev/null 2>&1 ;;
    esac
}
program_of() { case $1 in xfs | btrfs) echo mkfs.$1 ;; *) echo mkfs.ext4 ;; esac; }

# cut_once SYSTEM [NAME=VALUE...]: 0 when what was acknowledged is whole on the copy, 1 when not, with what is said.
cut_once() {
    local system=$1 tries newest
    shift
    mount -o "$options" "$work/disk" "$live" 2> "$work/said" || return 1
    rm -rf "$live/ckpt"
    : > "$work/acks"
    setsid env "$@" SWEEP_ROOT="$live" SWEEP_ACKS="$work/acks" LD_PRELOAD="$programs/sweep_recorder.so" \
        "$programs/sweep_saver" 2 "$live/ckpt" 1000000 > /dev/null 2>&1 &
    saver=$!
    for _ in $(seq 3000); do [ "$(wc -l < "$work/acks")" -ge 3 ] && break; sleep 0.01; done
    sleep "0.0$((RANDOM % 10))$((RANDOM % 10))"
    kill -STOP -- -$saver
    newest=$(tail -n 1 "$work/acks")
    for tries in 1 2 3 4 5 6; do
        cp --sparse=always "$work/disk" "$work/cut"
        cmp -s "$work/disk" "$work/cut" && break
        [ "$tries" -lt 6 ] || { echo "the image does not come to rest" > "$work/said"; return 1; }
    done
    kill -9 -- -$saver
    wait $saver 2> /dev/null || true
    unmount "$live" || return 1
    mount -o "$options" "$work/cut" "$after" 2> "$work/said" || return 1
    local code=0
    "$programs/sweep_saver" check "$after/ckpt" "$newest" 2 > "$work/said" 2>&1 || code=1
    [ -n "$newest" ] || { echo "no step was acknowledged" > "$work/said"; code=1; }
    unmount "$after" || return 1
    return $code
}

failed=0 made=0
for system in "$@"; do
    program=$(program_of "$system")
    command -v "$program" > /dev/null || { echo "$system skipped: no $program"; continue; }
    make "$system"
    mount -o "$options" "$work/disk" "$live" 2> "$work/said" ||
        { echo "$system skipped: $(cat "$work/said")"; continue; }
    unmount "$live"
    result="$cuts power cuts, nothing lost"
    for cut in $(seq "$cuts"); do
        cut_once "$system" || { result="cut $cut: $(cat "$work/said")" failed=1; break; }
        made=$((made + 1))
    done
    noticed=0
    for cut in $(seq 10); do
        make "$system"
        cut_once "$system" SWEEP_NO_FSYNC=1 > /dev/null && continue
        grep -q "committed, there are\|is visible and damaged" "$work/said" && noticed=$cut
        break
    done
    [ "$noticed" -gt 0 ] || { echo "$system without fsync: not noticed, but: $(cat "$work/said")"; failed=1; }
    echo "$system: $result; without fsync noticed at cut $noticed"
done
[ $made -gt 0 ] || { echo "skipped: no file system could be mounted"; exit 77; }
exit $failed
