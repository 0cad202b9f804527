#!/bin/sh
# The algorithm is proved on two to eight ranks, one with a contribution left out is refused, and three ranks train as
# they do with the transport's own all_reduce.
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
sequences_per_step = 840
steps = 5
END
for ranks in 2 3 4 5 8; do
    "$orrery" check "$here/try.lua" --config "$work/try.toml" --set mesh.dp=$ranks --set 'collectives.dp="sundial"' \
        > "$work/check.txt" 2>&1 || { cat "$work/check.txt"; exit 1; }
    grep "sundial" "$work/check.txt" || { cat "$work/check.txt"; echo "check does not name it"; exit 1; }
done

# Without its last move the sum never reaches the last rank.
cp "$here/try.lua" "$work"
sed 's/^  return { chunks/  spread[#spread] = nil\n&/' "$here/sundial.lua" > "$work/sundial.lua"
if "$orrery" check "$work/try.lua" --config "$work/try.toml" --set mesh.dp=3 --set 'collectives.dp="sundial"' \
    > "$work/check.txt" 2>&1; then echo "a broken collective was not refused"; exit 1; fi
grep "sundial" "$work/check.txt"

for name in own sundial; do
    [ $name = own ] || set -- --set 'collectives.dp="sundial"'
    [ $name != own ] || set --
    "$orrery" run "$here/try.lua" --config "$work/try.toml" --set "run.folder=\"$work/$name\"" --set mesh.dp=3 \
        --set train.sequences_per_step=12 "$@" > "$work/log.txt" 2>&1 || { cat "$work/log.txt"; exit 1; }
    sed -n 's/.*"loss":\([0-9]*\.[0-9]\{1,4\}\).*/\1/p' "$work/$name/metrics.jsonl" > "$work/$name.txt"
done
[ "$(wc -l < "$work/own.txt")" -eq 5 ] || { cat "$work/log.txt"; echo "no five losses"; exit 1; }
paste "$work/own.txt" "$work/sundial.txt" > "$work/both.txt"
awk '{ d = $1 - $2; if (d > 0.001 || d < -0.001) bad = 1 } END { exit bad }' "$work/both.txt" ||
    { cat "$work/both.txt"; echo "its sums are not the transport's"; exit 1; }
echo "ok: three ranks train as they do with the transport's own all_reduce"
