#!/bin/sh
# Every collective gives the expected results on 2 and 3 processes, and a training run works over the transport.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
set -eu
orrery=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
plugins="plugins.path=[\"${2:-$here}\"]"
for ranks in 2 3; do
    for collective in all_reduce all_gather reduce_scatter all_to_all broadcast send_receive; do
        [ "$collective $ranks" != "send_receive 3" ] || continue
        "$orrery" bench $collective --transport sundial --ranks $ranks -b 12 -e 3M -f 64 -n 3 --set "$plugins" \
            > "$work/bench.txt" 2>&1 || { cat "$work/bench.txt"; echo "$collective failed"; exit 1; }
    done
done

seq 4000 > "$work/text.txt"
"$orrery" run "$here/try.lua" --set "$plugins" --set run.transport=sundial --set "run.folder=\"$work/run\"" \
    --set "data.path=\"$work/text.txt\"" --set data.tokens_per_sequence=16 --set train.sequences_per_step=4 \
    --set train.steps=3 --set mesh.dp=2 > "$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }
echo "ok: all collectives are right on 2 and 3 ranks, a run of 2 ranks trains"
