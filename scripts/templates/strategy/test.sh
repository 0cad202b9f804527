#!/bin/sh
# The strategy marks what it should, and two ranks train as one does.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
. "$(dirname "$0")/harness.sh"
must draw run --set mesh.dp=2
grep -q "at rest: vocab/dp 1/2" "$work/log.txt" || { cat "$work/log.txt"; fail "no row is split over dp"; }
for ranks in 1 2; do train run$ranks --set mesh.dp=$ranks; done
agree run1 run2 5 "two ranks do not train as one does"
echo "ok: rows are split over dp; losses of one and of two ranks agree"
