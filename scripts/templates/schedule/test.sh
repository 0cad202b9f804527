#!/bin/sh
# The schedule ends for every size, is proved for a model, and two stages train as one rank does.
# usage: test.sh ORRERY
. "$(dirname "$0")/harness.sh"
for stages in 2 3 4 8; do
    for micro in 1 $stages $((4 * stages)); do
        "$orrery" draw --schedule "$here/sundial.lua" --stages $stages --micro $micro > "$work/picture.txt"
    done
done
"$orrery" draw --schedule "$here/sundial.lua" --stages 4 --micro 8
for ranks in 1 2; do train run$ranks --set mesh.pp=$ranks; done
agree run1 run2 5 "two stages do not train as one rank does"
echo "ok: losses of one rank and of two stages agree"
