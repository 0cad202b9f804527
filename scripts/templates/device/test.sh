#!/bin/sh
# The plugin loads, and a model that needs more than its kernels is refused with the reason before anything starts.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
set -eu
orrery=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$orrery" plugins "${2:-$here}" > "$work/list.txt"
grep -q "device/sundial" "$work/list.txt" || { cat "$work/list.txt"; exit 1; }
seq 4000 > "$work/text.txt"
if "$orrery" run "$here/try.lua" --set "plugins.path=[\"${2:-$here}\"]" --set run.device=sundial \
    --set "run.folder=\"$work/run\"" --set "data.path=\"$work/text.txt\"" --set data.tokens_per_sequence=16 \
    --set train.sequences_per_step=4 --set train.steps=3 > "$work/log.txt" 2>&1; then
    echo "the model trained: the table is complete; now compare its losses with device = \"cpu\" here"
    exit 1
fi
grep -q "device sundial" "$work/log.txt" ||
    { cat "$work/log.txt"; echo "the refusal does not name the device"; exit 1; }
echo "ok: $(grep -m1 "device sundial" "$work/log.txt")"
