#!/usr/bin/env bash
# Runs the tests one after the other and writes table.txt: what each takes of wall and processor time, in seconds, and
# how many processors it keeps busy (processor time / wall time, rounded up). The machine should do nothing else.
# usage: measure.sh BUILD [arguments for ctest that choose tests; the other rows stay]
set -eu
table=$(cd "$(dirname "$0")" && pwd)/table.txt build=$1
shift
rows=$(mktemp)
trap 'rm -f "$rows" "$rows.log"' EXIT
TIMEFORMAT='%R %U %S'
names=$(ctest --test-dir "$build" -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p')
for name in $names; do
    taken=$( { time ctest --test-dir "$build" -R "^${name//./\\.}\$" > "$rows.log" 2>&1; } 2>&1) ||
        { cat "$rows.log" >&2; echo "measure: $name fails" >&2; exit 1; }
    awk -v name="$name" '{ busy = $2 + $3; n = int(busy / $1); n += n < busy / $1
        printf "%-28s %8.1f %8.1f %3d\n", name, $1, busy, n < 1 ? 1 : n }' <<< "$taken" | tee -a "$rows"
done
[ ! -e "$table" ] || awk 'NR == FNR { new[$1]; next } /^[a-z]/ && !($1 in new)' "$rows" "$table" >> "$rows"
{
    echo "# test                           wall processor busy; by scripts/test --times"
    sort -k2,2nr "$rows"
    awk '{ wall += $2; processor += $3 } END { printf "# sum %33.1f %8.1f\n", wall, processor }' "$rows"
} > "$table"
