#!/bin/sh
# The pages of the manual that is installed are true, for somebody who has the installed prefix alone. Orrery is
# installed into a folder; each page of its share/orrery/manual gets a folder of its own, where every block
# ```LANGUAGE FILE becomes that file and the blocks ```sh run are run in order, with the installed `orrery` on PATH. All
# Lua must be good Lua, all C++ compile against the installed headers, all links lead to a page.
# usage: pages.sh BUILD
set -eu
build=$1 bad=0
work=$build/tests/manual_pages
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" > "$work/install.txt"
PATH=$work/prefix/bin:$PATH
export PATH
pages=$work/prefix/share/orrery/manual
orrery --help > "$work/help.txt"
grep -qF "$pages" "$work/help.txt" || { cat "$work/help.txt"; echo "orrery --help does not name $pages"; bad=1; }

for page in "$pages"/*.md; do
    name=$(basename "$page" .md)
    folder=$work/$name
    mkdir -p "$folder"
    awk -v base="$folder/" '
        /^```[a-z]+/ {
            n++
            language = substr($1, 4)
            out = base (NF < 2 ? "block" n "." language : $2 == "run" ? "steps.sh" : $2)
            inside = 1
            next
        }
        /^```$/ { inside = 0 }
        inside { print > out }' "$page"
    grep -n 'See \[.*(\.\./' "$page" && { echo "$name: a section was not put in"; bad=1; }
    awk '/^```/ { code = !code } !code' "$page" > "$folder/prose.txt"
    for link in $(grep -oE '\]\([^)]*\)' "$folder/prose.txt" | sed 's/^](//; s/)$//; s/#.*//'); do
        case $link in http*) continue ;; esac
        [ -f "$pages/$link" ] || { echo "$name: there is no $link"; bad=1; }
    done
    [ "$name" = README ] || grep -qF "($name.md)" "$pages/README.md" || { echo "README.md lacks $name.md"; bad=1; }
    for source in "$folder"/*.lua; do
        [ -e "$source" ] || break
        luac -p "$source" || bad=1
    done
    for source in "$folder"/*.cpp; do
        [ -e "$source" ] || break
        ${CXX:-c++} -std=c++20 -Wall -Wextra -Werror -fsyntax-only -DORRERY_ABI='"manual"' -I "$work/prefix/include" \
            "$source" || { echo "$name: $(basename "$source") does not compile"; bad=1; }
    done
    [ -e "$folder/steps.sh" ] || continue
    (cd "$folder" && timeout 300 sh -eu steps.sh) > "$folder/steps.txt" 2>&1 || {
        echo "$name: failed"
        tail -n 30 "$folder/steps.txt"
        bad=1
    }
done
steps=$(find "$work" -name steps.sh | wc -l)
sources=$(find "$work" -maxdepth 2 -name '*.cpp' | wc -l)
echo "$steps pages run, $sources C++ sources compiled"
[ "$steps" -ge 5 ] && [ "$sources" -ge 3 ] || { echo "blocks were not found"; bad=1; }
exit $bad
