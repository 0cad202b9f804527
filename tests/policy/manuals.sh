#!/bin/sh
# The manuals are true. Every block ```sh of every README.md must be good shell and name files that exist; a block
# ```sh run is run, from the root, and must succeed within five minutes; one marked ```sh run long only where
# ORRERY_LONG is set. A block ```lua must be good Lua. Pages of scripts/manual are for an installed prefix: pages.sh.
# usage: manuals.sh SOURCE BUILD
set -eu
source=$1 build=$2 bad=0 ran=0
cd "$source"
work=$build/tests/manuals
rm -rf "$work"
mkdir -p "$work"

find . -name README.md -not -path './build*' -not -path './scripts/manual/*' \
    -not -path './shared/*' -not -path './data/*' | sort > "$work/list"
while read -r manual; do
    # one file per block, NAME.NN and .sh, .run.sh, .long.sh or .lua; two digits, so that they run in order
    name=$(echo "$manual" | sed 's|^\./||; s|/README.md$||; s|README.md|top|; s|/|_|g')
    awk -v base="$work/$name" '
        function begin(kind) { out = sprintf("%s.%02d.%s", base, ++n, kind); printf "" > out; inside = 1 }
        /^```sh( run( long)?)?$/ { begin(NF == 1 ? "sh" : $NF ".sh"); next }
        /^```lua/ { begin("lua"); next }
        /^```$/ { inside = 0 }
        inside { print > out }' "$manual"
done < "$work/list"

for block in "$work"/*.lua; do
    luac -p "$block" || bad=1
done
for block in "$work"/*.sh; do
    [ -e "$block" ] || break
    label=$(basename "$block" .sh)
    sh -n "$block" || { echo "$label: not good shell"; bad=1; continue; }
    folders='core|plugins|kernels|scripts|configs|tests|bench'
    for path in $(grep -oE "(^|[ =])($folders)/[A-Za-z0-9_./-]+" "$block" | tr -d ' ='); do
        [ -e "$path" ] || { echo "$label: there is no $path"; bad=1; }
    done
    case $block in
    *.run.sh | *.long.sh)
        [ "$build" = "$source/build" ] || continue # the manuals speak of build/
        case $block in *.long.sh) [ -n "${ORRERY_LONG:-}" ] || continue ;; esac
        ran=$((ran + 1))
        timeout 300 sh -eu "$block" > "$block.out" 2>&1 || {
            echo "$label: failed"
            tail -n 20 "$block.out"
            bad=1
        }
        ;;
    esac
done
echo "$ran blocks run"
exit $bad
