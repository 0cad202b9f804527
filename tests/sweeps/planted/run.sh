#!/usr/bin/env bash
# Plants each failure of list.txt in a copy of the tree, builds what its layer needs, and runs that: it must fail, and
# pass without the patch. Exit code 1 where one is not caught. The table goes to the file that ORRERY_LONG names, too.
# usage: run.sh BUILD_FOLDER [NUMBER...]     the copy is BUILD_FOLDER/planted, with a build folder of its own
#        run.sh --check                      no more than: does every patch apply, has each one a layer and a command
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../../.." && pwd)
fail() { echo "FAILED: $*" >&2; exit 1; }
command -v git > /dev/null || { echo "skipped: git is not installed"; exit 77; }

numbers=$(sed -n 's/^\([0-9][0-9]\) .*/\1/p' "$here/list.txt")
# of NUMBER KEY: what the list says of it; KEY name: its name.
of() {
    if [ "$2" = name ]; then
        sed -n "s/^$1 //p" "$here/list.txt"
    else
        awk -v number="$1" -v key="$2:" '/^[0-9][0-9] / { mine = $1 == number }
            mine && $1 == key { sub(/^[a-z]+: /, ""); print }' "$here/list.txt"
    fi
}
patch_of() { echo "$here/$1-$(of "$1" name).patch"; }

checked() {
    local number key
    for number in $numbers; do
        for key in name back file layer build run; do
            [ -n "$(of "$number" $key)" ] || fail "list.txt: number $number does not say: $key"
        done
        grep -q "^+++ b/$(of "$number" file)$" "$(patch_of "$number")" ||
            fail "$number: its patch does not change $(of "$number" file)"
        # Without context it may fit elsewhere: what it changes is there once, with two lines on each side.
        (cd "$top" && git apply --check "$(patch_of "$number")") ||
            fail "$number: the patch does not apply any more; plant the same failure in the code as it is now"
    done
    [ "$(echo "$numbers" | wc -l)" -eq "$(ls "$here"/*.patch | wc -l)" ] || fail "not as many patches as numbers"
    echo "$(echo "$numbers" | wc -l) patches apply"
}
[ "${1:?a build folder, or --check}" != --check ] || { checked; exit 0; }
mkdir -p "$1"
work=$(cd "$1" && pwd)/planted
shift
chosen=${*:-$numbers}
checked
tree=$work/tree build=$work/tree/build tests=$work/tree/tests
export tests build
mkdir -p "$build"
exec 9> "$work/lock"
flock -n 9 || fail "another run.sh is at work in $work"
# What is the same keeps its time, so that no more is built than has changed; what is not gets a new one.
rm -rf "$work/fresh"
mkdir "$work/fresh"
(cd "$top" && find . -mindepth 1 -maxdepth 1 ! -name 'build*' ! -name .git ! -name runs ! -name data -print0 |
    tar --null -T - -cf -) | tar -xf - -C "$work/fresh"
(cd "$tree" && find . -path ./build -prune -o -type f -print) |
    while read -r file; do [ -e "$work/fresh/$file" ] || rm "$tree/$file"; done
(cd "$work/fresh" && find . -type f) | while read -r file; do
    cmp -s "$work/fresh/$file" "$tree/$file" || { mkdir -p "$tree/${file%/*}" && cp "$work/fresh/$file" "$tree/$file"; }
done
rm -rf "$work/fresh"
# The copy is no repository, though it may lie in one. planted NUMBER [-R]
planted() {
    (cd "$tree" && GIT_CEILING_DIRECTORIES=$work git apply "${@:2}" "$(patch_of "$1")") ||
        fail "$1: the patch does not go in or out"
}
build() {
    (cd "$tree" && ORRERY_BUILD=build scripts/build "$@") > "$work/built" 2>&1 || { cat "$work/built"; return 1; }
}
# run NUMBER: the layer; its exit code in $code, its seconds in $took, what it says in $work/said.
run() {
    local began=$SECONDS
    code=0
    (unset ORRERY_LONG && cd "$build" && timeout 1500 bash -c "$(of "$1" run)") > "$work/said" 2>&1 || code=$?
    took=$((SECONDS - began))
    ! grep -q "No test cases matched" "$work/said" || fail "$1: its layer has no such test"
}
# What it said of the failure, on one line.
words() {
    local line
    line=$(grep -m 1 -A 2 -E '^[^ ]+: FAILED:' "$work/said" | grep -v 'FAILED:\|explicitly' | head -n 1)  # Catch's
    [ -n "$line" ] || line=$(grep -m 1 -E 'FAILED|a power cut|finding:|not found|visible|^after ' "$work/said") ||
        line=$(grep . "$work/said" | tail -n 1) || line="exit code $code, without a word"
    echo "$line" | sed 's#/[^ ]*/##g; s/^ *//' | cut -c1-120
}

table=${ORRERY_LONG:-/dev/null}
: > "$table"
say() { echo "$*" | tee -a "$table"; }
# Without patches first: a layer that fails anyway catches nothing.
targets=$(for number in $chosen; do of "$number" build; done | tr ' ' '\n' | sort -u)
build $targets || fail "the tree does not build"
declare -A sound
for number in $chosen; do
    what=$(of "$number" run)
    [ -z "${sound[$what]:-}" ] || continue
    run "$number"
    sound[$what]=$code
    case $code in
    0) say "without a patch: $(of "$number" layer) passes, $took s" ;;
    77) say "skipped: $(of "$number" layer): $(tail -n 1 "$work/said")" ;;
    *) tail -n 20 "$work/said"; fail "$(of "$number" layer) fails without a patch: $(words)" ;;
    esac
done
caught=0 skipped=0 all=0
for number in $chosen; do
    all=$((all + 1))
    [ "${sound[$(of "$number" run)]}" -ne 77 ] || { skipped=$((skipped + 1)); continue; }
    planted "$number"
    build $(of "$number" build) || fail "$number does not build"
    run "$number"
    planted "$number" -R
    result=caught
    case $code in 0 | 77) result="NOT CAUGHT" ;; *) caught=$((caught + 1)) ;; esac
    say "$number $(of "$number" name): $result by $(of "$number" layer), $took s: $(words)"
done
say "$caught of $all planted bugs caught, $skipped skipped"
[ $((caught + skipped)) -eq $all ]
