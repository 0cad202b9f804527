#!/bin/sh
# The schedule ends for every size, is proved for a model, and two stages train as one rank does.
# usage: test.sh ORRERY
set -eu
orrery=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for stages in 2 3 4 8; do
    for micro in 1 $stages $((4 * stages)); do
        "$orrery" draw --schedule "$here/sundial.lua" --stages $stages --micro $micro > "$work/picture.txt"
    done
done
"$orrery" draw --schedule "$here/sundial.lua" --stages 4 --micro 8

seq 4000 > "$work/text.txt"
cat > "$work/try.toml" << END
[data]
path = "$work/text.txt"
tokens_per_sequence = 16
[train]
sequences_per_step = 4
steps = 5
END
for ranks in 1 2; do
    "$orrery" run "$here/try.lua" --config "$work/try.toml" --set "run.folder=\"$work/run$ranks\"" \
        --set mesh.pp=$ranks > "$work/log$ranks.txt" 2>&1 || { cat "$work/log$ranks.txt"; exit 1; }
    sed -n 's/.*"loss":\([0-9]*\.[0-9]\{1,4\}\).*/\1/p' "$work/run$ranks/metrics.jsonl" > "$work/losses$ranks.txt"
done
[ "$(wc -l < "$work/losses1.txt")" -eq 5 ] || { cat "$work/log1.txt"; echo "no five losses"; exit 1; }
paste "$work/losses1.txt" "$work/losses2.txt" > "$work/both.txt"
awk '{ d = $1 - $2; if (d > 0.001 || d < -0.001) bad = 1 } END { exit bad }' "$work/both.txt" ||
    { cat "$work/both.txt"; echo "two stages do not train as one rank does"; exit 1; }
echo "ok: losses of one rank and of two stages agree"
