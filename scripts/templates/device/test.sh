#!/bin/sh
# The plugin loads, and a model that needs more than its kernels is refused with the reason before anything starts.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
. "$(dirname "$0")/harness.sh"
"$orrery" plugins "${2:-$here}" > "$work/list.txt"
grep -q "device/sundial" "$work/list.txt" || { cat "$work/list.txt"; exit 1; }
if do_it run run --set run.device=sundial > "$work/log.txt" 2>&1; then
    fail "the model trained: the table is complete; now compare its losses with device = \"cpu\" here"
fi
grep -q "device sundial" "$work/log.txt" || { cat "$work/log.txt"; fail "the refusal does not name the device"; }
echo "ok: $(grep -m1 "device sundial" "$work/log.txt")"
