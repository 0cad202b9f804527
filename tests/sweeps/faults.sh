#!/usr/bin/env bash
# Hits one call of one of two ranks that go on from a checkpoint, save twice (writing, linking, retiring) and restore:
# every call, or every STRIDE-th, with each kind of fault. Afterwards every visible step is whole, what was committed is
# there, the next start works; a failure was told, that of a flush in any case: what it was to make durable may be lost
# without a word from now on; and a fault that is no failure of the call changed nothing.
# usage: faults.sh FOLDER_OF_PROGRAMS STRIDE [KIND...]
set -eu
programs=$1 stride=$2
shift 2
[ $# -gt 0 ] || set -- kill EIO ENOSPC EDQUOT EROFS EINTR short
work=$(mktemp -d /dev/shm/orrery-sweep.XXXXXX 2> /dev/null || mktemp -d)
trap 'rm -rf "$work"' EXIT
export ASAN_OPTIONS=detect_leaks=0
fail() {
    echo "FAILED: rank $rank, call $nth, $kind ($(cat "$work/said")): $1" >&2
    cat "$work/err" >&2
    exit 1
}
mkdir "$work/start"
"$programs/sweep_saver" threads "$work/start/ckpt" 30
faults=0
declare -A by_kind
for kind in "$@"; do
    for rank in 0 1; do
        nth=1
        while :; do
            rm -rf "$work/now" "$work/said"
            cp -r "$work/start" "$work/now"
            code=0
            SWEEP_ROOT="$work/now" SWEEP_FAULT="$nth:$kind" SWEEP_SAID="$work/said" \
                LD_PRELOAD="$programs/sweep_recorder.so" timeout 60 \
                "$programs/sweep_saver" $rank "$work/now/ckpt" 50 2> "$work/err" || code=$?
            [ -s "$work/said" ] || break
            faults=$((faults + 1)) by_kind[$kind]=$((${by_kind[$kind]:-0} + 1))
            [ $code -le 1 ] || fail "exit code $code"
            if [ $code -ne 0 ]; then
                [ -s "$work/err" ] || fail "it failed without a word"
                [ $kind != short ] || fail "a short count is no failure"
                [ $kind != EINTR ] || ! grep -qE '^(write|pread)' "$work/said" ||
                    fail "an interrupted call is no failure"
                newest=30
            else
                # But for the file that tries whether the place makes links: then it is taken for one that makes none.
                # Of an older step that is retired a note says it.
                [[ $kind != E* || $kind = EINTR ]] || ! grep '^fsync' "$work/said" | grep -qv '/\.orrery-link-' ||
                    grep -q "^note: checkpoint of step .* may be back after a power cut" "$work/err" ||
                    fail "a flush failed, and the save says that it worked"
                newest=50
            fi
            "$programs/sweep_saver" check "$work/now/ckpt" $newest 2 2>> "$work/err" || fail "the check behind it"
            nth=$((nth + stride))
        done
    done
done
for kind in "${!by_kind[@]}"; do echo "$kind ${by_kind[$kind]}"; done | sort
echo "$faults faults: all told, nothing lost"
