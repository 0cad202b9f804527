# For test.sh, which sources it with its own arguments: ORRERY [FOLDER OF PLUGINS].
set -eu
orrery=$1 here=$(cd "$(dirname "$0")" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
plugins="plugins.path=[\"${2:-$here}\"]"
seq 4000 > "$work/text.txt"
cat > "$work/try.toml" << END
[data]
path = "$work/text.txt"
tokens_per_sequence = 16
[train]
sequences_per_step = 4
steps = 5
END

fail() { echo "$1"; exit 1; }
# do_it COMMAND RUN [more arguments]: a command of orrery on try.lua, with a folder for the run.
do_it() {
    command=$1 run=$2
    shift 2
    "$orrery" "$command" "$here/try.lua" --config "$work/try.toml" --set "$plugins" \
        --set "run.folder=\"$work/$run\"" "$@"
}
# The same, which must not fail; what it prints is in log.txt.
must() { do_it "$@" > "$work/log.txt" 2>&1 || { cat "$work/log.txt"; fail "$1 $2 fails"; }; }
# Writes the losses of a run to RUN.txt, a line each.
losses() { sed -n 's/.*"step":.*"loss":\([^,}]*\).*/\1/p' "$work/$1/metrics.jsonl" > "$work/$1.txt"; }
last_loss() { losses "$1"; tail -n 1 "$work/$1.txt"; }
# train RUN [more arguments]
train() { must run "$@"; losses "$1"; }
# agree ONE OTHER STEPS WHAT: both runs have as many losses, which are the same but for rounding; else WHAT is said.
agree() {
    [ "$(wc -l < "$work/$1.txt")" -eq "$3" ] || { cat "$work/log.txt"; fail "$1: no $3 losses"; }
    paste "$work/$1.txt" "$work/$2.txt" > "$work/both.txt"
    awk '{ d = $1 - $2; if (d > 0.001 || d < -0.001) bad = 1 } END { exit bad }' "$work/both.txt" ||
        { cat "$work/both.txt"; fail "$4"; }
}
# learns RUN SHARE: its loss falls to that share of the first.
learns() {
    awk -v share="$2" 'NR == 1 { first = $1 } { last = $1 } END { exit last > share * first }' "$work/$1.txt" ||
        { cat "$work/$1.txt"; fail "$1 does not learn"; }
}
# near ONE OTHER SHARE WHAT: the last loss of OTHER is at most that share above that of ONE; else WHAT is said.
near() {
    last_loss "$2" | awk -v share="$3" -v one="$(last_loss "$1")" '{ exit $1 > one * (1 + share) }' ||
        { tail -n 1 "$work/$1.txt" "$work/$2.txt"; fail "$4"; }
}
