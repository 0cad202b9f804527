#!/bin/sh
# Two ranks that send gradients as codes learn as those that send them whole, and verify passes. The plugin with a bound
# that is too small is named by verify and by the suite of codecs.
# usage: test.sh ORRERY PLUGINS CMAKE SUITE
. "$(dirname "$0")/harness.sh"
cmake=$3 suite=$4 more="--set mesh.dp=2 --set train.sequences_per_step=8"
train plain $more --set train.steps=40 --set script.codec=none
train run $more --set train.steps=40
learns run 0.7
near plain run 0.03 "with the codec it does not learn as without"
must verify run $more
grep -q "gradients are sent as sundial over dp" "$work/log.txt" || { cat "$work/log.txt"; fail "it is not used"; }

mkdir "$work/wrong"
cp "$here/CMakeLists.txt" "$work/wrong"
sed "s/bound = 1.005/bound = 0.001/" "$here/sundial.cpp" > "$work/wrong/sundial.cpp"
{
    "$cmake" -S "$work/wrong" -B "$work/wrong/build" -DCMAKE_PREFIX_PATH="$(dirname "$orrery")/.."
    "$cmake" --build "$work/wrong/build"
} > "$work/log.txt" 2>&1 || { cat "$work/log.txt"; fail "it does not build again"; }
plugins="plugins.path=[\"$work/wrong/build/plugins\"]"
do_it verify run $more > "$work/log.txt" 2>&1 && fail "verify accepts a bound that it breaks"
grep -q "farther from what was encoded than codec sundial allows" "$work/log.txt" ||
    { cat "$work/log.txt"; fail "verify does not name the codec"; }
ORRERY_CONFORMANCE_CODECS=sundial ORRERY_CONFORMANCE_PLUGINS="$work/wrong/build/plugins" \
    "$suite" > "$work/log.txt" 2>&1 && fail "the suite accepts a bound that it breaks"
grep -q "codec sundial breaks its bound on the reference kernels: array random" "$work/log.txt" ||
    { cat "$work/log.txt"; fail "the suite does not name the codec"; }
echo "ok: the loss falls as without the codec, verify passes, and names a codec that breaks its bound"
