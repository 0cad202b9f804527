#!/bin/sh
# Every collective gives the expected results on 2 and 3 processes, and a training run works over the transport.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
. "$(dirname "$0")/harness.sh"
for ranks in 2 3; do
    for collective in all_reduce all_gather reduce_scatter all_to_all broadcast send_receive; do
        [ "$collective $ranks" != "send_receive 3" ] || continue
        "$orrery" bench $collective --transport sundial --ranks $ranks -b 12 -e 3M -f 64 -n 3 --set "$plugins" \
            > "$work/bench.txt" 2>&1 || { cat "$work/bench.txt"; fail "$collective failed"; }
    done
done
train run --set run.transport=sundial --set mesh.dp=2
echo "ok: all collectives are right on 2 and 3 ranks, a run of 2 ranks trains"
