#!/usr/bin/env bash
# A search of `orrery plan` that ends early, by --seconds or a signal, prints and writes what it has found, and says so.
source "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || { echo "skipped: python3, which reads JSON, is not here"; exit 77; }
plan=("$orrery" plan "$source_root/scripts/gpt.lua" --cluster "$source_root/configs/clusters/h100.toml" --ranks 64
    --set train.sequences_per_step=256 --set train.steps=10 --set data.tokens_per_sequence=512 --set data.vocab=1024
    --set script.layers=16 --set script.embed=256 --set script.heads=8)
exits 2 none "${plan[@]}" --seconds 0.001
grep -q "nothing that fits was found; stopped early by --seconds 0.001: [0-9]* choices\? judged" none.err ||
    { cat none.err; fail "an end before anything was found is not reported"; }
# How long it takes until some choices are judged depends on the machine.
seconds=2
until "${plan[@]}" --seconds $seconds --json > some.txt 2> some.err &&
    python3 -c 'import json; exit(json.load(open("some.txt"))["compiled"] < 3)'; do
    seconds=$((2 * seconds))
    [ $seconds -lt 100 ] || { cat some.err; fail "nothing is found in time"; }
done
seconds=$((2 * seconds))

# stopped NAME BY: NAME.txt has JSON of a stopped search, NAME.svg says so.
stopped() {
    python3 - "$1.txt" "$2" << 'CHECK' || fail "$1: not what a stopped search has found"
import json, sys
plan = json.load(open(sys.argv[1]))
said = f"stopped early by {sys.argv[2]}: {plan['compiled']} choices judged, "
assert plan["stopped"].startswith(said), plan["stopped"]
assert plan["choices"][0]["fits"] and plan["compiled"] >= len(plan["choices"]) > 1, plan
times = [choice["step_s"] for choice in plan["choices"] if choice["fits"]]
assert times == sorted(times), times
CHECK
    grep -q "stopped early by $2" "$1.svg" || fail "$1: the picture does not say it"
}
exits 0 seconds "${plan[@]}" --seconds $seconds --json -o seconds.svg
stopped seconds "--seconds $seconds"
for signal in INT:2 TERM:15; do
    name=${signal%:*} number=${signal#*:}
    exits $((128 + number)) "$name" timeout --preserve-status -s "$name" $seconds "${plan[@]}" --json -o "$name.svg"
    stopped "$name" "signal $number"
done
exits 0 text "${plan[@]}" --seconds $seconds
grep -q "^stopped early by --seconds $seconds: " text.txt && grep -q "^\[mesh\]" text.txt ||
    { cat text.txt; fail "the text does not say that the search was stopped, or what it found"; }
# No child of a stopped search is left.
pgrep -f "INT.svg|TERM.svg" > left.txt && { cat left.txt; fail "a child is left"; }

# A batch that the ranks do not divide is named, with one that they do.
exits 2 seven "$orrery" plan "$source_root/scripts/gpt.lua" --cluster "$source_root/configs/clusters/h100.toml" \
    --ranks 7 --set train.sequences_per_step=256 --set train.steps=10 --set data.tokens_per_sequence=64 \
    --set data.vocab=1024 --set script.layers=6 --set script.embed=48 --set script.heads=4 --most-cp 1
grep -q "nothing fits" seven.err && { cat seven.err; fail "memory is not what is lacking"; }
named="256 sequences per step are not divisible by dp = 7 (for dp = 7: set train.sequences_per_step to 252 or 259)"
grep -qF "$named" seven.err ||
    { cat seven.err; fail "nothing says that the batch does not divide"; }
echo "1 passed, 0 failed"
