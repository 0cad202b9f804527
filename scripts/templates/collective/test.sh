#!/bin/sh
# The algorithm is proved on two to eight ranks, one with a contribution left out is refused, and three ranks train as
# they do with the transport's own all_reduce.
# usage: test.sh ORRERY
. "$(dirname "$0")/harness.sh"
sundial='collectives.dp="sundial"'
for ranks in 2 3 4 5 8; do
    must check run --set mesh.dp=$ranks --set train.sequences_per_step=840 --set "$sundial"
    grep "sundial" "$work/log.txt" || { cat "$work/log.txt"; fail "check does not name it"; }
done

# Without its last move the sum never reaches the last rank.
cp "$here/try.lua" "$work"
sed 's/^  return { chunks/  spread[#spread] = nil\n&/' "$here/sundial.lua" > "$work/sundial.lua"
if (here=$work && do_it check run --set mesh.dp=3 --set train.sequences_per_step=12 --set "$sundial") \
    > "$work/log.txt" 2>&1; then fail "a broken collective was not refused"; fi
grep "sundial" "$work/log.txt"

train own --set mesh.dp=3 --set train.sequences_per_step=12
train sundial --set mesh.dp=3 --set train.sequences_per_step=12 --set "$sundial"
agree own sundial 5 "its sums are not the transport's"
echo "ok: three ranks train as they do with the transport's own all_reduce"
