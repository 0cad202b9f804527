#!/bin/sh
# Records the calls of a run that saves, links and retires, and judges what a power cut behind each of them may leave.
# As a counter-test the same without fsync: a commit must be found lost.
# usage: crash_states.sh FOLDER_OF_PROGRAMS STATES [stay]      stay: older steps are removed where they are, not renamed
set -eu
programs=$1 states=$2 stay=${3:-}
work=$(mktemp -d /dev/shm/orrery-sweep.XXXXXX 2> /dev/null || mktemp -d)
trap 'rm -rf "$work"' EXIT
export ASAN_OPTIONS=detect_leaks=0
record() {
    rm -rf "$work/root" "$work/record"
    mkdir "$work/root"
    env "$@" SWEEP_ROOT="$work/root" SWEEP_LOG="$work/record" LD_PRELOAD="$programs/sweep_recorder.so" \
        "$programs/sweep_saver" threads "$work/root/ckpt" 60
}
record SWEEP_STEPS_STAY="$stay"
judge() { "$programs/sweep_enumerate" "$work/record" "$work/root" "$work/root/ckpt" "$work/state" "$states" "$@"; }
judge
record SWEEP_STEPS_STAY="$stay" SWEEP_NO_FSYNC=1
judge --expect-loss > "$work/said" ||
    { cat "$work/said"; echo "a run without fsync loses nothing: this sweep would not notice"; exit 1; }
echo "without fsync: $(cat "$work/said")"
