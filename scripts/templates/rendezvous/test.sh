#!/bin/sh
# Two ranks that meet by the plugin end where two that meet over TCP end, and the loss of one ends the other.
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
END
train() {
    "$orrery" run "$here/try.lua" --config "$work/try.toml" --set "run.folder=\"$work/$1\"" \
        --set "run.rendezvous=\"$1\"" --set "train.steps=$2"
}
last_loss() { grep '"step":6[,}]' "$work/$1/metrics.jsonl" | sed -n 's/.*"loss":\([^,}]*\).*/\1/p'; }
for way in tcp sundial; do train "$way" 6 > "$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }; done
[ -n "$(last_loss sundial)" ] || { cat "$work/log.txt"; echo "no loss of step 6"; exit 1; }
[ "$(last_loss sundial)" = "$(last_loss tcp)" ] ||
    { echo "sundial ends with $(last_loss sundial), tcp with $(last_loss tcp)"; exit 1; }
train sundial 1000000 > "$work/killed.txt" 2>&1 & launcher=$!
until [ "$(wc -l < "$work/sundial/metrics.jsonl")" -gt 20 ]; do sleep 0.1; done
kill -KILL "$(pgrep -P "$(pgrep -P "$launcher")" | tail -n 1)"    # a rank, below the launcher below the function
if wait "$launcher"; then echo "a killed rank is no failure"; exit 1; fi
grep -q "was killed by signal 9" "$work/killed.txt" || { cat "$work/killed.txt"; exit 1; }
echo "ok: both ways end with the loss $(last_loss sundial), and a killed rank ends the run"
