#!/usr/bin/env bash
# Which steps are there in the end, on file systems: worlds of the retention grid (policies, saves that are left out,
# clocks that jump, marks, restarts; tests/unit/run_saves_grid.cpp) are played on the store posix, and at each restart
# of an overlay all that was saved so far becomes a lower layer.
# usage: retained.sh UNIT_TESTS STRIDE SYSTEM...     the systems of lower_layers.sh; every STRIDE-th world
set -eu
if [ "${1:-}" = layers ]; then # layers SYSTEM DISK PLACE begin|restart
    system=$2 disk=$3 place=$4
    umount "$place" 2> /dev/null || true
    [ "$5" != begin ] || rm -rf "${disk:?}"/*
    mkdir -p "$disk/0"
    case $system in
    overlay*)
        lower=0
        for layer in $(cd "$disk" && ls -d u* 2> /dev/null | sort -V); do lower=$layer:$lower; done
        number=$(ls "$disk" | grep -c '^u' || true)
        mkdir "$disk/u$number" "$disk/w$number"
        cd "$disk"
        exec mount -t overlay -o "lowerdir=$lower,upperdir=u$number,workdir=w$number" overlay "$place"
        ;;
    *) exec mount --bind "$disk/0" "$place" ;;
    esac
fi
tests=$1 stride=$2
shift 2
source "$(dirname "$0")/file_systems.sh"
mounted=0
for system in "$@"; do
    mount_disk "$system" > "$work/err" 2>&1 || { echo "$system skipped: $(tail -n 1 "$work/err")"; continue; }
    layers="$0 layers $system $disk $run"
    if $layers begin 2> "$work/err"; then
        mounted=$((mounted + 1))
        ORRERY_LAYERS=$layers ORRERY_PLACE=$run/ckpt ORRERY_STRIDE=$stride "$tests" "[on_disk]" > "$work/said" ||
            { cat "$work/said" >&2; exit 1; }
        echo "$system | $(grep ' all as they must be' "$work/said")"
        umount "$run"
    else
        echo "$system skipped: $(tail -n 1 "$work/err")"
    fi
    umount "$disk"
done
[ $mounted -gt 0 ] || { echo "skipped: no file system could be mounted"; exit 77; }
