#!/bin/sh
# The strategy marks what it should, and two ranks train as one does.
# usage: test.sh ORRERY
set -eu
orrery=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 4000 > "$work/text.txt"
cat > "$work/try.toml" << END
[data]
path = "$work/text.txt"
tokens_per_sequence = 16
[train]
sequences_per_step = 4
steps = 5
END
do_it() {
    "$orrery" "$1" "$here/try.lua" --config "$work/try.toml" --set "run.folder=\"$work/run$2\"" --set "mesh.dp=$2"
}

do_it draw 2 > "$work/picture.txt"
grep -q "at rest: vocab/dp 1/2" "$work/picture.txt" ||
    { cat "$work/picture.txt"; echo "no row is split over dp"; exit 1; }

for ranks in 1 2; do
    do_it run $ranks > "$work/log$ranks.txt" 2>&1 || { cat "$work/log$ranks.txt"; exit 1; }
    sed -n 's/.*"loss":\([0-9]*\.[0-9]\{1,4\}\).*/\1/p' "$work/run$ranks/metrics.jsonl" > "$work/losses$ranks.txt"
done
[ "$(wc -l < "$work/losses1.txt")" -eq 5 ] || { cat "$work/log1.txt"; echo "no five losses"; exit 1; }
paste "$work/losses1.txt" "$work/losses2.txt" > "$work/both.txt"
awk '{ d = $1 - $2; if (d > 0.001 || d < -0.001) bad = 1 } END { exit bad }' "$work/both.txt" ||
    { cat "$work/both.txt"; echo "two ranks do not train as one does"; exit 1; }
echo "ok: rows are split over dp; losses of one and of two ranks agree"
