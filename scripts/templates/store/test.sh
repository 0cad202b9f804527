#!/bin/sh
# A run keeps its checkpoints in the store and goes on from them: 3 + 3 steps end where 6 steps end, bit for bit.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
. "$(dirname "$0")/harness.sh"
# keep RUN STEPS
keep() {
    train "$1" --set run.store=sundial --set mesh.dp=2 --set "train.steps=$2"
    grep -q "committed and read back" "$work/log.txt" || { cat "$work/log.txt"; fail "no checkpoint"; }
}
keep halves 3
keep halves 6
keep whole 6
agree whole halves 6 "it does not go on where it stopped"
[ "$(last_loss whole)" = "$(last_loss halves)" ] || fail "resumed $(last_loss halves), straight $(last_loss whole)"
echo "ok: a resumed run ends with the loss $(last_loss whole), as the straight one does"
