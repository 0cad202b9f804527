#!/bin/sh
# A network with the op learns; two ranks train as one does, split over tp and as ZeRO-3; verify finds no fault; a
# dumped program with it is read again.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
set -eu
orrery=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seq 4000 > "$work/text.txt"
cat > "$work/try.toml" << END
[plugins]
path = ["${2:-$here}"]
[data]
path = "$work/text.txt"
tokens_per_sequence = 16
[train]
sequences_per_step = 8
steps = 20
END
# do_it COMMAND [more arguments]
do_it() {
    command=$1
    shift
    "$orrery" "$command" "$here/try.lua" --config "$work/try.toml" --set "run.folder=\"$work/run\"" "$@" \
        > "$work/log.txt" 2>&1 || { cat "$work/log.txt"; echo "$command $* fails"; exit 1; }
}

for mesh in "mesh.dp=1" "mesh.tp=2" "mesh.dp=2 --set script.zero=3"; do
    rm -rf "$work/run"
    do_it run --set $mesh
    sed -n 's/.*"step":.*"loss":\([^,}]*\).*/\1/p' "$work/run/metrics.jsonl" > "$work/losses.txt"
    [ -e "$work/alone.txt" ] || cp "$work/losses.txt" "$work/alone.txt"
    [ "$(wc -l < "$work/losses.txt")" -eq 20 ] || { cat "$work/log.txt"; echo "$mesh: no 20 losses"; exit 1; }
    paste "$work/alone.txt" "$work/losses.txt" > "$work/both.txt"
    awk '{ d = $1 - $2; if (d > 0.001 || d < -0.001) bad = 1 } NR == 1 { first = $1 } { last = $1 }
         END { exit bad || last > 0.7 * first }' "$work/both.txt" ||
        { cat "$work/both.txt"; echo "$mesh: it does not learn, or not as one rank does"; exit 1; }
    do_it verify --set $mesh
done

do_it check --set mesh.tp=2 --dump "$work/passes"
last=$(ls "$work"/passes/try/*.ir | tail -n 1)
grep -q "= sundial " "$last" || { cat "$last"; echo "the op is not in the program"; exit 1; }
"$orrery" check "$last" --set "plugins.path=[\"${2:-$here}\"]" > "$work/again.ir"
cmp "$last" "$work/again.ir" || { echo "a dumped program is not read as it was written"; exit 1; }
echo "ok: the loss falls, the losses of one rank, of tp=2 and of ZeRO-3 agree, verify passes"
