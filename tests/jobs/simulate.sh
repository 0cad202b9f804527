#!/usr/bin/env bash
# orrery simulate and plan: a script on a cluster that is not here; what cannot be is refused with place and figures.
# Runs beside other tests.
source "$(dirname "$0")/lib.sh"

cat > small.toml <<'TOML'
[mesh]
pp = 2
dp = 2
tp = 2
[train]
steps = 10
sequences_per_step = 32
microbatches = 8
precision = "bf16"
[data]
tokens_per_sequence = 512
vocab = 1024
[script]
layers = 8
embed = 512
heads = 8
TOML
gpt=$source_root/scripts/gpt.lua clusters=$source_root/configs/clusters
simulate() { $orrery simulate $gpt --config small.toml --cluster "$clusters/h100.toml" "$@"; }
# value KEY FILE: of a flat JSON object.
value() { python3 -c 'import json,sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])' "$1" "$2"; }
less() { python3 -c 'import sys; sys.exit(not float(sys.argv[1]) < float(sys.argv[2]))' "$1" "$2"; }
# refused CODE WORD ARGUMENTS...
refused() {
    local code=$1 word=$2
    shift 2
    "$@" > said.txt 2>&1
    local got=$?
    [ $got -eq "$code" ] || { cat said.txt; fail "$* ended with $got, not $code"; }
    grep -qF -- "$word" said.txt || { cat said.txt; fail "no \"$word\" from $*"; }
}

for cluster in "$clusters"/*.toml; do
    [ "$(basename "$cluster")" = this_machine.toml ] && continue
    $orrery simulate $gpt --config small.toml --cluster "$cluster" > said.txt || fail "no forecast on $cluster"
    grep -q '^step ' said.txt && grep -q '^memory ' said.txt || { cat said.txt; fail "$cluster: no step or memory"; }
done
simulate --json > plain.json || fail "no JSON"
simulate --json > again.json && cmp -s plain.json again.json || fail "two forecasts differ"
simulate --json --slow 3:2 > slow.json || fail "no slow rank"
less "$(value step_s plain.json)" "$(value step_s slow.json)" || fail "a slow rank costs nothing"
[ "$(value slowest_rank slow.json)" = 3 ] || fail "the slow rank is not named"
simulate --json --set script.zero=3 > zero.json || fail "no ZeRO-3"
less "$(value memory_bytes zero.json)" "$(value memory_bytes plain.json)" || fail "ZeRO-3 saves no memory"
simulate -o step.svg > /dev/null || fail "no drawing"
grep -q '<svg xmlns=' step.svg && grep -q 'MFU' step.svg || fail "the drawing is no SVG with its figures"

refused 2 "128 missing" simulate --set mesh.dp=64 --set train.sequences_per_step=512
refused 2 "RANK:TIMES" simulate --slow 8:2
refused 2 "RANK:TIMES" simulate --slow 1:0.5
refused 2 "no software" simulate --software magic
refused 2 "no axis" simulate --mapping ep
refused 2 "rank 0 takes " simulate --set script.layers=64 --set script.embed=16384 --set script.heads=128
refused 2 "No such file" $orrery simulate $gpt --config small.toml --cluster nowhere.toml
sed 's/memory_gb_s/memory_gbs/' "$clusters/h100.toml" > wrong.toml
refused 2 'did you mean "memory_gb_s"?' $orrery simulate $gpt --config small.toml --cluster wrong.toml

head -c 3000 /dev/urandom > wrong.toml
refused 2 "wrong.toml" $orrery simulate $gpt --config small.toml --cluster wrong.toml
: > wrong.toml
refused 2 "missing accelerator, expected a table" $orrery simulate $gpt --config small.toml --cluster wrong.toml
refused 2 "is a folder" $orrery simulate $gpt --config small.toml --cluster "$clusters"
refused 2 "cannot be written" simulate --trace no/such/folder.json
simulate --set mesh.dp=1 | grep -q "^failures .*no \[storage\]" || fail "a failure rate without storage says nothing"
{ echo 'colour = "red"'; cat "$clusters/h100.toml"; } > wrong.toml
refused 2 "colour" $orrery simulate $gpt --config small.toml --cluster wrong.toml

plan() { $orrery plan $gpt --config small.toml --cluster "$clusters/h100.toml" --ranks 8 "$@"; }
plan --jobs 1 -o plan.svg > plan.txt || fail "no plan"
grep -q "has 79.6 GiB" plan.svg && [ "$(grep -c 'class="lead"' plan.svg)" -gt 1 ] ||
    fail "the plan's picture has no limit, or no numbers"
# How many are judged at the same time changes nothing, not even the order of equals.
plan --jobs 3 > plan3.txt || fail "no plan in processes"
diff <(sed 's/, [0-9.]* s$//' plan.txt) <(sed 's/, [0-9.]* s$//' plan3.txt) || fail "--jobs changes the plan"
grep -q "^left out: [0-9]* choices, as " plan.txt || { cat plan.txt; fail "nobody says what was left out and why"; }
# What --keep holds is what the configuration says.
plan --keep zero,schedule,recompute,sequence --set script.zero=3 --set 'script.pipeline="zbv"' \
    --set 'script.recompute="all"' --set script.sequence=true > kept.txt ||
    { cat kept.txt; fail "no plan of what is kept"; }
# step, MFU, memory and its unit, pp, dp, tp, samples, ZeRO stage, schedule
awk '/step s/ { getline; exit !($9 == 3 && ($10 == "zbv" || $5 == 1) && / yes / && / all /) }' kept.txt ||
    { cat kept.txt; fail "the plan tells other options than those that it keeps"; }
refused 2 ".svg" plan -o plan.png
refused 2 "the mesh that --keep mesh keeps has 8" $orrery plan $gpt --config small.toml \
    --cluster "$clusters/h100.toml" --keep mesh --ranks 7
refused 2 "not in range 1 to 1000000" $orrery plan $gpt --config small.toml --cluster "$clusters/h100.toml" --ranks -5
grep -q '^\[mesh\]' plan.txt || { cat plan.txt; fail "the plan says no TOML that runs it"; }
sed -n '/^\[mesh\]/,$p' plan.txt > best.toml
best=$(awk '/step s/ { getline; print $1 }' plan.txt)
# What it names comes to what it says; the proof and the other programs change nothing of the step.
sed -n '/^\[train\]/,/^\[data\]/p;' small.toml | grep -v -e microbatches -e '^\[data' > run.toml
{ sed -n '/^\[mesh\]/,/^\[train\]/p' best.toml | grep -v '^\[train'; cat run.toml; grep microbatches best.toml
  sed -n '/^\[data\]/,$p' small.toml
  sed -n '/^\[script\]/,$p' best.toml | grep -v -e '^\[script' -e '^#'; } > whole.toml
order=$(sed -n 's/^# place ranks with //p' best.toml)
$orrery simulate $gpt --config whole.toml --cluster "$clusters/h100.toml" --json $order > best.json ||
    fail "the best does not run"
python3 -c 'import sys; sys.exit(abs(float(sys.argv[1]) / float(sys.argv[2]) - 1) > 2e-3)' \
    "$best" "$(value step_s best.json)" ||
    fail "plan says $best s, simulate $(value step_s best.json)"
less "$(value step_s best.json)" "$(value step_s plain.json)" || fail "the plan is no faster than what was configured"
refused 2 "no such option" $orrery plan $gpt --config small.toml --cluster "$clusters/h100.toml" --keep colour
refused 2 "are missing" $orrery plan $gpt --config small.toml --cluster "$clusters/h100.toml" --ranks 1000
