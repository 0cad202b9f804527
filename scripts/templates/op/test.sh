#!/bin/sh
# A network with the op learns; two ranks train as one does, split over tp, where other ops replace it, and as ZeRO-3;
# verify finds no fault; a dumped program with it is read again.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
. "$(dirname "$0")/harness.sh"
for mesh in "mesh.dp=1" "mesh.tp=2" "mesh.dp=2 --set script.zero=3"; do
    rm -rf "$work/run"
    train run --set train.sequences_per_step=8 --set train.steps=20 --set $mesh
    [ -e "$work/alone.txt" ] || cp "$work/run.txt" "$work/alone.txt"
    agree alone run 20 "$mesh: it does not train as one rank does"
    learns run 0.7
    must verify run --set train.sequences_per_step=8 --set $mesh
done

# dumped MESH: the last dump of a check on that mesh.
dumped() {
    rm -rf "$work/passes"
    must check run --set "$1" --dump "$work/passes"
    last=$(ls "$work"/passes/try/*.ir | tail -n 1)
}
dumped mesh.tp=2
! grep -q "= sundial " "$last" || { cat "$last"; fail "tp=2: the op is not replaced by others"; }
dumped mesh.dp=2
grep -q "= sundial " "$last" || { cat "$last"; fail "the op is not in the program"; }
"$orrery" check "$last" --set "$plugins" > "$work/again.ir"
cmp "$last" "$work/again.ir" || fail "a dumped program is not read as it was written"
echo "ok: the loss falls, the losses of one rank, of tp=2 and of ZeRO-3 agree, verify passes"
