#!/bin/sh
# Two ranks that send gradients as codes learn as those that send them whole; verify passes, and names the codec where
# it states too small a bound.
# usage: test.sh ORRERY
. "$(dirname "$0")/harness.sh"
more="--set mesh.dp=2 --set train.sequences_per_step=8"
train plain $more --set train.steps=40 --set script.codec=none
train run $more --set train.steps=40
learns run 0.7
near plain run 0.03 "with the codec it does not learn as without"
must verify run $more
grep -q "gradients are sent as sundial over dp" "$work/log.txt" || { cat "$work/log.txt"; fail "it is not used"; }

mkdir "$work/wrong"
cp "$here"/*.lua "$work/wrong"
sed "s/bound = 1.005/bound = 0.001/" "$here/sundial.lua" > "$work/wrong/sundial.lua"
here=$work/wrong do_it verify run $more > "$work/log.txt" 2>&1 && fail "verify accepts a bound that it breaks"
grep -q "farther from what was encoded than codec sundial allows" "$work/log.txt" ||
    { cat "$work/log.txt"; fail "verify does not name the codec"; }
echo "ok: the loss falls as without the codec, verify passes, and names a codec that breaks its bound"
