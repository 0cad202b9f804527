#!/bin/sh
# The source fills a network's inputs: it learns, and two ranks train as one does.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
set -eu
orrery=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/try.toml" << END
[plugins]
path = ["${2:-$here}"]
[train]
sequences_per_step = 16
steps = 30
END
for ranks in 1 2; do
    "$orrery" run "$here/try.lua" --config "$work/try.toml" --set "run.folder=\"$work/run$ranks\"" \
        --set "mesh.dp=$ranks" > "$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }
    sed -n 's/.*"step":.*"loss":\([^,}]*\).*/\1/p' "$work/run$ranks/metrics.jsonl" > "$work/losses$ranks.txt"
done
[ "$(wc -l < "$work/losses1.txt")" -ge 30 ] || { cat "$work/log.txt"; echo "no 30 losses"; exit 1; }
paste "$work/losses1.txt" "$work/losses2.txt" > "$work/both.txt"
awk '{ d = $1 - $2; if (d > 0.001 || d < -0.001) bad = 1 } NR == 1 { first = $1 } { last = $1 }
     END { exit bad || last > first / 2 }' "$work/both.txt" ||
    { cat "$work/both.txt"; echo "it does not learn, or two ranks do not train as one does"; exit 1; }
echo "ok: the loss falls, losses of one and of two ranks agree"
