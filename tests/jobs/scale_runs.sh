#!/usr/bin/env bash
# `orrery scale`: the script really runs at each size; the table, the picture and the exit code say what was measured.
# Mistakes run nothing. No test here depends on how well this machine scales, which may also be far beyond the ideal:
# each run meets its target, or the exit code must follow the table. scale_simulated.sh misses a target.
source "$(dirname "$0")/lib.sh"
tiny=("$source_root/scripts/gpt.lua" --set run.seed=5 --set data.path=text.txt --set data.tokens_per_sequence=32
    --set train.sequences_per_step=4 --set script.layers=2 --set script.embed=48 --set script.heads=3
    --set run.transport=shm)
# scale CODE NAME ARGUMENTS...
scale() { TMPDIR=$work exits "$1" "$2" timeout 200 "$orrery" scale "${tiny[@]}" "${@:3}"; }

scale 0 weak --ranks 1,2 --steps 8 --target 0.000001 -o weak.svg
[ "$(sizes weak)" = "1 4;2 8;" ] || { cat weak.txt; fail "weak scaling: rows $(sizes weak)"; }
grep -q "weak scaling over dp, the batch grows with the ranks; target 0 %" weak.txt ||
    { cat weak.txt; fail "no title"; }
grep -q "the target is met" weak.txt || { cat weak.txt; fail "the target is not met"; }
grep -q "^<svg" weak.svg && grep -q "</svg>" weak.svg && grep -q ">communication dp<" weak.svg ||
    fail "the picture shows no messages"
! grep -q "http" <(grep -v xmlns weak.svg) || fail "the picture is not self-contained"
TMPDIR=$work timeout 200 "$orrery" scale "${tiny[@]}" --ranks 2,4 --steps 8 --strong --target 1 --rounds 1 \
    > strong.txt 2> strong.err
code=$?
verdict=$(sed -nE 's/^4 ranks reach [0-9.]+ % of ideal scaling: the target is (met|missed)$/\1/p' strong.txt)
case "$verdict $code" in "met 0" | "missed 1") ;; *) cat strong.txt strong.err; fail "strong: exit code $code" ;; esac
[ "$(sizes strong)" = "2 4;4 4;" ] || { cat strong.txt; fail "strong scaling: rows $(sizes strong)"; }
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
refused 2 '--ranks 1,65536: a run of 65536 ranks on this host|(64 on each processor, up to 1024)|--simulate' \
    --ranks 1,65536
refused 2 '3 ranks are not divisible by the 2 ranks' --ranks 3 --set mesh.tp=2
refused 2 'a batch of 4 sequences on 3 ranks does not scale to a whole number of sequences on 4' --ranks 3,4
refused 2 'a file name that ends in .svg' --ranks 1 -o picture.png
refused 2 'there is no folder no/such' --ranks 1 -o no/such/picture.svg
refused 2 'expected the name of a file' --ranks 1 -o ''
refused 2 '--target 2: expected a fraction' --ranks 1 --target 2
refused 2 '--steps 1: expected 4' --ranks 1 --steps 1
refused 2 'the run of 1 rank|ended with exit code 2|no option "layerss"' --ranks 1 --set script.layerss=2

# A signal ends the run that is under way and removes its folder; what it has started is gone before it.
set -m  # a background job is a process group of its own, with SIGINT as a terminal gives it
runs_in() { compgen -G "$work/orrery-scale-*/0-0/metrics.jsonl" > /dev/null && steps_done "$(dirname "$(compgen -G \
    "$work/orrery-scale-*/0-0/metrics.jsonl")")" 2; }
for signal in INT TERM; do
    TMPDIR=$work "$orrery" scale "${tiny[@]}" --ranks 2 --steps 100000 > stopped.txt 2> stopped.err &
    job=$!
    wait_for runs_in || { cat stopped.err; fail "no steps before SIG$signal"; }
    launcher=$(pgrep -P $job)
    ranks=$(ranks_of "$launcher")
    kill -$signal $([ $signal = INT ] && echo -$job || echo $job)
    wait $job
    code=$?
    [ $code -eq $((128 + $(kill -l $signal))) ] || { cat stopped.err; fail "SIG$signal: exit code $code"; }
    for process in $launcher $ranks; do ! kill -0 "$process" 2> /dev/null || fail "SIG$signal: $process lives"; done
    [ -z "$(find "$work" -name 'orrery-scale-*')" ] || fail "SIG$signal: a folder is left"
    [ ! -s stopped.txt ] || fail "SIG$signal: it printed a table"
done
set +m
TMPDIR=$work "$orrery" scale no.lua --ranks 1 > no.txt 2>&1
[ $? -eq 2 ] && grep -q "script no.lua not found" no.txt || { cat no.txt; fail "a script that is not there"; }
echo "1 passed, 0 failed"
