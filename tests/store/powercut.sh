#!/bin/sh
# Cuts the power at each system call of a save: the image of a mounted ext4 is copied as it is on its "disk", and the
# copy is mounted. Whatever is visible there is whole. As a counter-test, fsync is made to do nothing: then it is not.
# usage: powercut.sh FOLDER_OF_STORE_DRILL        needs root, loop devices and strace; skipped (77) without
set -eu
drill=$1/store_drill work=$1/store_powercut
export ASAN_OPTIONS=detect_leaks=0
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "it needs root to mount file systems"
command -v strace mkfs.ext4 > /dev/null || skip "strace or mkfs.ext4 is not installed"
strace -o /dev/null true 2> /dev/null || skip "this machine does not allow ptrace"

rm -rf "$work"
mkdir -p "$work/live" "$work/after"
leave() {
    umount "$work/after" 2> /dev/null || true
    umount "$work/live" 2> /dev/null || true
    rm -rf "$work"
}
trap leave EXIT

fresh() { # an ext4 with two checkpoints, mounted at live
    ! mountpoint -q "$work/live" || umount "$work/live"
    rm "$work/disk" # a loop device that is not gone yet has the old one's pages
    cp "$work/start" "$work/disk"
    mount -o loop "$work/disk" "$work/live"
}
cut() { # what a machine finds after the power was cut now: `kept` are the visible steps; fails when one is damaged
    rm -f "$work/cut"
    cp "$work/disk" "$work/cut"
    mount -o loop "$work/cut" "$work/after"
    rc=0
    kept=$("$drill" list "$work/after/ckpt" 0 2>&1)
    "$drill" check "$work/after/ckpt" 2 2> "$work/said" || rc=$?
    umount "$work/after"
    return $rc
}

truncate -s 8M "$work/disk"
mkfs.ext4 -q "$work/disk"
mount -o loop "$work/disk" "$work/live" 2> /dev/null || skip "this machine does not allow loop mounts"
"$drill" save "$work/live/ckpt" 1
"$drill" save "$work/live/ckpt" 2
umount "$work/live"
cp "$work/disk" "$work/start"

cuts=0
for call in write fsync linkat renameat2 unlinkat; do
    nth=1
    while [ $nth -lt 40 ]; do
        fresh
        # the shell reports the kill of strace itself on its own error output
        (strace -qq -o "$work/trace" -e "inject=$call:signal=KILL:when=$nth" \
            "$drill" save "$work/live/ckpt" 3 || true) \
            2> /dev/null
        grep -q "killed by SIGKILL" "$work/trace" || break
        cut || { echo "power cut at $call number $nth: $(cat "$work/said")"; exit 1; }
        cuts=$((cuts + 1)) nth=$((nth + 1))
    done
done
fresh
"$drill" save "$work/live/ckpt" 3
cut || { echo "power cut after a save: $(cat "$work/said")"; exit 1; }
[ $cuts -ge 15 ] || { echo "only $cuts cuts were made"; exit 1; }

# The counter-test: a save whose fsync does nothing and says that it did is not durable.
fresh
strace -qq -o /dev/null -e inject=fsync:retval=0 "$drill" save "$work/live/ckpt" 3
seen=$("$drill" list "$work/live/ckpt" 0)
if cut && [ "$kept" = "$seen" ]; then echo "a save without fsync survived: this test would not notice"; exit 1; fi
echo "$cuts power cuts"
