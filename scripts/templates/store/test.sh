#!/bin/sh
# A run keeps its checkpoints in the store and goes on from them: 3 + 3 steps end where 6 steps end, bit for bit.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
set -eu
orrery=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 4000 > "$work/text.txt"
cat > "$work/try.toml" << END
[run]
store = "sundial"
[plugins]
path = ["${2:-$here}"]
[data]
path = "$work/text.txt"
tokens_per_sequence = 16
[train]
sequences_per_step = 4
END
train() {
    "$orrery" run "$here/try.lua" --config "$work/try.toml" --set "run.folder=\"$work/$1\"" --set "train.steps=$2" \
        --set mesh.dp=2 > "$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }
    grep -q "committed and read back" "$work/log.txt" || { cat "$work/log.txt"; echo "no checkpoint"; exit 1; }
}
last_loss() { grep '"step":6[,}]' "$work/$1/metrics.jsonl" | sed -n 's/.*"loss":\([^,}]*\).*/\1/p'; }
train halves 3
train halves 6
train whole 6
[ -n "$(last_loss whole)" ] || { cat "$work/whole/metrics.jsonl"; echo "no loss of step 6"; exit 1; }
[ "$(last_loss whole)" = "$(last_loss halves)" ] ||
    { echo "resumed $(last_loss halves), straight $(last_loss whole)"; exit 1; }
echo "ok: a resumed run ends with the loss $(last_loss whole), as the straight one does"
