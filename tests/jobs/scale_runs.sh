#!/usr/bin/env bash
# `orrery scale`: the script really runs at each size; the table, the picture and the exit code say what was measured.
# Mistakes run nothing. No test here depends on how well this machine scales: targets are set out of reach either way.
source "$(dirname "$0")/lib.sh"
tiny=("$source_root/scripts/gpt.lua" --set run.seed=5 --set data.path=text.txt --set data.tokens_per_sequence=32
    --set train.sequences_per_step=4 --set script.layers=2 --set script.embed=48 --set script.heads=3
    --set run.transport=shm)
# scale CODE NAME ARGUMENTS...
scale() {
    local code=$1 name=$2 found
    shift 2
    TMPDIR=$work timeout 200 "$orrery" scale "${tiny[@]}" "$@" > "$name.txt" 2> "$name.err"
    found=$?
    [ $found -eq "$code" ] || { cat "$name.txt" "$name.err"; fail "scale $*: exit code $found, expected $code"; }
}
rows() { awk '$1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ { print $1, $2 }' "$1.txt" | tr '\n' ';'; }

scale 0 weak --ranks 1,2 --steps 8 --target 0.000001 -o weak.svg
[ "$(rows weak)" = "1 4;2 8;" ] || { cat weak.txt; fail "weak scaling: rows $(rows weak)"; }
grep -q "weak scaling over dp, the batch grows with the ranks; target 0 %" weak.txt ||
    { cat weak.txt; fail "no title"; }
grep -q "the target is met" weak.txt || { cat weak.txt; fail "the target is not met"; }
grep -q "^<svg" weak.svg && grep -q "</svg>" weak.svg && grep -q ">communication dp<" weak.svg ||
    fail "the picture shows no messages"
! grep -q "http" <(grep -v xmlns weak.svg) || fail "the picture is not self-contained"
scale 1 strong --ranks 2,4 --steps 8 --strong --target 1 --rounds 1
[ "$(rows strong)" = "2 4;4 4;" ] || { cat strong.txt; fail "strong scaling: rows $(rows strong)"; }
[ -z "$(find "$work" -name 'orrery-scale-*')" ] || fail "a folder of a run is left"
grep " 2 .*%" strong.txt | head -1

# refused CODE WORDS ARGUMENTS...
refused() {
    local code=$1 words=$2 word
    shift 2
    scale "$code" refused "$@"
    word=$(missing_word "$words" "$(cat refused.err)")
    [ -z "$word" ] || { cat refused.err; fail "scale $*: no \"$word\""; }
    [ ! -s refused.txt ] || fail "scale $*: it printed a table"
}
refused 2 '--ranks 2,1: expected ascending' --ranks 2,1
refused 2 '3 ranks do not divide by the 2 of the mesh' --ranks 3 --set mesh.tp=2
refused 2 'a batch of 4 sequences at 3 ranks does not grow to a whole one at 4' --ranks 3,4
refused 2 'name the file .svg' --ranks 1 -o picture.png
refused 2 '--target 2: expected a part' --ranks 1 --target 2
refused 2 '--steps 1: expected 4' --ranks 1 --steps 1
refused 2 'the run of 1 rank|ended with exit code 2|no option "layerss"' --ranks 1 --set script.layerss=2
TMPDIR=$work "$orrery" scale no.lua --ranks 1 > no.txt 2>&1
[ $? -eq 2 ] && grep -q "no script no.lua" no.txt || { cat no.txt; fail "a script that is not there"; }
echo "1 passed, 0 failed"
