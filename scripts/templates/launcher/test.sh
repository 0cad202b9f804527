#!/bin/sh
# Two ranks that the launcher starts end where two that orrery starts end, and a variable that is wrong is named.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
set -eu
orrery=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 4000 > "$work/text.txt"
cat > "$work/try.toml" << END
[plugins]
path = ["${2:-$here}"]
[mesh]
dp = 2
[data]
path = "$work/text.txt"
tokens_per_sequence = 16
[train]
sequences_per_step = 4
steps = 6
END
train() { "$orrery" run "$here/try.lua" --config "$work/try.toml" --set "run.folder=\"$work/$1\""; }
# Such a launcher gives the same command to each rank, with its place in the environment.
rank() { MY_JOB="$work" MY_RANK=$1 MY_RANKS=2 train sundial; }
last_loss() { grep '"step":6[,}]' "$work/$1/metrics.jsonl" | sed -n 's/.*"loss":\([^,}]*\).*/\1/p'; }
train orrery > "$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }
rank 1 > "$work/other.txt" 2>&1 & other=$!
rank 0 > "$work/log.txt" 2>&1 || { cat "$work/log.txt" "$work/other.txt"; exit 1; }
wait "$other" || { cat "$work/other.txt"; exit 1; }
[ -n "$(last_loss sundial)" ] || { cat "$work/log.txt"; echo "no loss of step 6"; exit 1; }
[ "$(last_loss sundial)" = "$(last_loss orrery)" ] ||
    { echo "sundial ends with $(last_loss sundial), orrery with $(last_loss orrery)"; exit 1; }
if rank two > "$work/wrong.txt" 2>&1; then echo "a rank that is no number is taken"; exit 1; fi
grep -q "MY_RANK=two: expected an integer" "$work/wrong.txt" || { cat "$work/wrong.txt"; exit 1; }
echo "ok: both end with the loss $(last_loss sundial)"
