#!/usr/bin/env bash
# `orrery simulate` on this machine: a run by what it measured, what if something were different, a table that is kept
# and refitted, and what is refused. Times are this machine's: none is held against a bound.
source "$(dirname "$0")/lib.sh"
export XDG_CACHE_HOME=$work/cache
run_tiny runs/a 12 > run.txt 2>&1 || { cat run.txt; fail "the run"; }
! grep -q "predicted" run.txt || fail "a run without a table predicts something"
[ -f runs/a/costs.json ] || fail "no costs.json"

# has WORDS FILE: all of the words, separated by |.
has() {
    local word
    word=$(missing_word "$1" "$(cat "$2")")
    [ -z "$word" ] || { cat "$2"; fail "no \"$word\" in $2"; }
}
# value KEY FILE: of a flat JSON object.
value() { python3 -c 'import json,sys; print(json.load(open(sys.argv[2]))[sys.argv[1]])' "$1" "$2"; }
less() { python3 -c 'import sys; sys.exit(not float(sys.argv[1]) < float(sys.argv[2]))' "$1" "$2"; }
what_if() { "$orrery" simulate runs/a "$@"; }

what_if > same.txt || fail "the run as it was"
has "dp=2, 2 ranks of 1 thread|dp by shm| predicted, | measured (|predicted against measured" same.txt
has "matmul|dp: all_reduce|as measured|runs/a/costs.json" same.txt
! grep -q "scaled" same.txt || { cat same.txt; fail "kernels of the run's own plan are scaled"; }
! grep -q "not measured" same.txt || { cat same.txt; fail "what the run did was not measured"; }
what_if --json > same.json && [ "$(value as_measured same.json)" = True ] || fail "no JSON"
# No plan of the run was anything else: its kernels alone are most of its prediction.
python3 - << 'CHECK' || fail "the prediction holds too little or too much of what the run counted"
import json
table, told = json.load(open("runs/a/costs.json")), json.load(open("same.json"))
compute = table["step_seconds"]["compute"]
assert 0.5 * compute < told["step_s"], (told, table["step_seconds"])
assert told["measured_step_s"] == table["step_seconds"]["step"]
CHECK
what_if --json --slow 1:3 > slow.json || fail "a straggler"
less "$(value step_s same.json)" "$(value step_s slow.json)" || fail "a straggler costs nothing"
[ "$(value as_measured slow.json)" = False ] || fail "a straggler is what was measured"
what_if --json --link-gbit 0.1 --link-us 100 > link.json || fail "a slow link"
less "$(value step_s slow.json)" "$(value step_s link.json)" || fail "a link of 100 Mbit/s is fast"
# As many processors as the run had are no change; more than this host has are as many as were asked for.
had=$(python3 -c 'import json; print(json.load(open("same.json"))["processors"])')
what_if --json --processors "${had%.*}" > had.json && cmp -s same.json had.json ||
    fail "the run's own processors are a change"
what_if --json --processors 1000 > more.json || fail "more processors"
[ "$(value as_measured more.json)" = False ] || fail "more processors are what was measured"
[ "$(value processors more.json)" = 1000.0 ] || fail "processors are not those that were asked for"
what_if --set mesh.dp=4 > four.txt || fail "four ranks"
has "dp=4, 4 ranks|scaled by their work|that the run measured" four.txt
what_if --set script.zero=3 > zero.txt || fail "ZeRO-3"
has "not measured: |all_gather by shm (from its all_reduce)" zero.txt

# refused CODE WORDS ARGUMENTS...
refused() {
    local code=$1 words=$2 out word
    shift 2
    out=$("$orrery" "$@" 2>&1)
    [ $? -eq "$code" ] || fail "$*: another exit code than $code: $out"
    word=$(missing_word "$words" "$out")
    [ -z "$word" ] || fail "$*: no \"$word\" in: $out"
}
refused 2 'transport gloo of axis dp was not measured|shm|orrery calibrate --transports gloo' \
    simulate runs/a --set run.transport=gloo
refused 2 'did you mean "layers"' simulate runs/a --set script.layerss=2
refused 2 'RANK:TIMES' simulate runs/a --slow 9:2
refused 2 '--link-us needs the rate of the link' simulate runs/a --link-us 5
refused 2 'no cluster and no table|--cluster FILE|--table FILE' simulate "$source_root/scripts/gpt.lua" \
    --set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=4
refused 2 'no table of measured costs nowhere.json' simulate runs/a --table nowhere.json
echo '{"format": "other"}' > wrong.json
refused 2 'wrong.json: it is not a table of measured costs' simulate runs/a --table wrong.json
refused 2 'simulate.table: no table of measured costs none.json' simulate runs/a --set simulate.table=none.json
refused 2 'runs/a is a run of script nowhere.lua, which is not found' simulate runs/a --set run.script=nowhere.lua
cp -r runs/a runs/two
sed -E 's/"hosts": *"1"/"hosts": "2"/' runs/a/costs.json > runs/two/costs.json
refused 2 'the run had 2 hosts|--cluster FILE' simulate runs/two
refused 2 'simulate.table: no table of measured costs none.json' run runs/a --set simulate.table=none.json
mkdir runs/empty
refused 2 'runs/empty is not a run' simulate runs/empty
cp -r runs/a runs/young && rm runs/young/costs.json
refused 2 'runs/young has no costs.json|--table FILE' simulate runs/young
echo "a run, what if, and what is refused"

"$orrery" calibrate --refit runs/a -o fit.json > fit.txt || fail "refit into a new table"
has "starting from an empty table|fit.json: |rows of kernels" fit.txt
"$orrery" calibrate --refit runs/a --keep > kept.txt || fail "a table that is kept"
kept=$(sed -n "s|^\($XDG_CACHE_HOME/orrery/costs/[0-9a-f]*.json\): .*|\1|p" kept.txt)
[ -f "$kept" ] || { cat kept.txt; fail "where it is kept"; }
run_tiny runs/b 12 > told.txt 2>&1 || { cat told.txt; fail "a run with a table"; }
has "where the time went|predicted against measured|matmul|dp: all_reduce|the rest|as measured" told.txt
has "  costs: the saved costs of this machine ($kept)" told.txt
"$orrery" calibrate --refit runs/a runs/b/costs.json -o fit.json > fit.txt || fail "refit of two"
has "starting from the table fit.json" fit.txt
# A row that only the kept table has: what is refitted and kept begins with it, whatever -o has.
card='{"transport":"card","op":"message","ranks":2,"bytes":8,"seconds":1e-3,"samples":1}'
sed -i "s/^ \"communication\": \[/&\n  $card,/" "$kept"
"$orrery" calibrate --refit runs/b -o fit.json --keep > both.txt || fail "refit of both"
has "starting from $kept|fit.json: |$kept: " both.txt
cmp -s fit.json "$kept" && grep -q '"card"' fit.json || { cat both.txt; fail "-o and --keep have other tables"; }
"$orrery" calibrate --refit runs/b > printed.json 2> printed.txt || fail "refit on standard output"
cmp -s fit.json printed.json || fail "what is printed is another table"
has "starting from $kept" printed.txt
"$orrery" simulate runs/young --table fit.json > young.txt || fail "a run by another's table"
has "fit.json|the saved costs of this machine ($kept)" young.txt
! grep -q "another machine" young.txt || { cat young.txt; fail "this machine is another"; }
sed -E 's/"(model name|CPU part)":"[^"]*"/"\1":"Other CPU"/; s/"oneDNN":"[^"]*"/"oneDNN":"0.1"/' fit.json > carried.json
"$orrery" simulate runs/young --table carried.json > carried.txt || fail "a table of another machine"
has "carried.json: costs are of another machine: |, here " carried.txt
"$orrery" simulate runs/young --table carried.json --json > carried.out || fail "a table of another machine in JSON"
[[ $(value notes carried.out) == *"carried.json: costs are of another machine"* ]] || fail "JSON does not tell"
run_tiny runs/d 6 --set simulate.table=carried.json > held.txt 2>&1 || { cat held.txt; fail "a run with such a table"; }
has "  costs: carried.json|  costs are of another machine: " held.txt
# Kernels of a cluster's accelerator by a table of one; days, and the price where the file has one.
sed -E 's/"(model name|CPU part)": *"[^"]*"/"\1":"NVIDIA H100-80GB"/' fit.json > h100.json
sed '/^measured_as/a price_per_hour = 2.5' "$source_root/configs/clusters/h100.toml" > priced.toml
tiny=("$source_root/scripts/gpt.lua" --set data.path=text.txt --set data.tokens_per_sequence=32 --set mesh.dp=2
    --set train.steps=9 --set train.sequences_per_step=4 --set train.precision=f32 --set script.layers=2
    --set script.embed=48 --set script.heads=3 --cluster priced.toml)
"$orrery" simulate "${tiny[@]}" --json > formula.json || fail "a cluster by formulas"
"$orrery" simulate "${tiny[@]}" --table h100.json --tokens 1.28e9 --json > table.json || fail "a table of a cluster"
python3 -c 'import json; table = json.load(open("h100.json"))
for row in table["kernels"]: row["seconds"] *= 2
json.dump(table, open("twice.json", "w"))' || fail "a table of a machine half as fast"
"$orrery" simulate "${tiny[@]}" --table twice.json --json > twice_said.json || fail "a table of a slower machine"
python3 - << 'CHECK' || fail "kernels of a table, days and price on a cluster"
import json
formula, table = json.load(open("formula.json")), json.load(open("table.json"))
assert "kernels" not in formula and "training" not in formula and formula["notes"] == []
assert table["notes"] == ["kernel times on h100 are measured, from h100.json (NVIDIA H100-80GB)"], table["notes"]
assert table["kernels"]["tables"] == ["h100.json"] and "as measured" in table["kernels"]["sources"][0], table
twice = json.load(open("twice_said.json"))
computing = [one["step_s"] * one["computing"] for one in (formula, table, twice)]
assert 1.9 < computing[2] / computing[1] < 2.1 and abs(computing[1] / computing[0] - 1) > 0.02, computing
training = table["training"]
assert training["steps"] == 1.28e9 / 128 and training["goodput"] is None, training
assert abs(training["days"] / (1e7 * table["step_s"] / 86400) - 1) < 1e-9, training
assert abs(training["price"] / (training["days"] * 24 * 2 * 2.5) - 1) < 1e-6, training
CHECK
"$orrery" simulate "${tiny[@]}" --table h100.json --tokens 1.28e9 > table.txt || fail "a table of a cluster, as text"
has "training    1.28 G tokens: 10,000,000 steps, | days without failures, price |h100.json (NVIDIA H100-80GB)" \
    table.txt
"$orrery" plan "${tiny[@]}" --ranks 2 --jobs 2 --table h100.json --tokens 1.28e9 > table.txt ||
    fail "a plan by a table"
has "training with the fastest choice: 1.28 G tokens: |kernel times on h100 are measured, from h100.json|as measured" \
    table.txt
refused 2 'measured on |DGX H100| has h100' simulate "${tiny[@]}" --table fit.json
sed 's/NVIDIA H100-80GB/NVIDIA B200/' h100.json > b200.json
refused 2 'b200.json: measured on NVIDIA B200, but h100.json on NVIDIA H100-80GB' simulate "${tiny[@]}" \
    --table h100.json --table b200.json
# A table measured in f32 does not price kernels in bf16.
"$orrery" simulate "${tiny[@]}" --table h100.json --set train.precision=bf16 > narrow.txt || fail "another precision"
has "ops and types without a row in the table, |matmul bf16" narrow.txt
refused 2 "a table has times of orrery's own kernels" simulate "${tiny[@]}" --table h100.json --software nemo
# Rows that differ between repetitions are noted.
sed -E 's/"(model name|CPU part)": *"[^"]*"/"\1":"NVIDIA H100-80GB"/
    0,/"samples":/s//"spread":2.5,"samples":/' fit.json > wide.json
"$orrery" simulate "${tiny[@]}" --table wide.json > wide.txt || fail "a table with a wide row"
has "wide.json: 1 of | vary widely between repetitions|2.5 medians" wide.txt
# A damaged table ends no run, and no question that has others to go by.
for file in "$XDG_CACHE_HOME"/orrery/costs/*.json; do echo "{" > "$file"; done
run_tiny runs/c 6 > damaged.txt 2>&1 || { cat damaged.txt; fail "a damaged table ends a run"; }
has "no prediction: |not valid json" damaged.txt
what_if > left.txt || fail "a damaged table ends a run's question"
has "the saved costs of this machine are not used: $kept: not valid json|runs/a/costs.json" left.txt
refused 2 "runs/young has no costs.json|the saved costs of this machine are not used: $kept" simulate runs/young
"$orrery" calibrate --refit runs/a -o new.json > new.txt || fail "refit beside a damaged table"
has "$kept: not valid json|it is not used|starting from an empty table" new.txt
sed -E 's/"processors": *"[0-9]+"/"processors":"-2"/' runs/a/costs.json > wrong.json
refused 2 'wrong.json: facts.processors is "-2", expected a whole number' simulate runs/a --table wrong.json
refused 2 'runs/young: runs/young/costs.json is missing' calibrate --refit runs/young -o fit.json
refused 2 'made by calibrate, expected a run' calibrate --refit fit.json -o new.json
cp runs/a/costs.json before.json
for run in a b; do
    refused 2 "-o runs/$run/costs.json: it would overwrite the costs that a run measured" \
        calibrate --refit runs/a -o runs/$run/costs.json
done
cmp -s before.json runs/a/costs.json || fail "what a run measured is gone"
refused 2 '-o runs/b/costs.json: it would overwrite the costs that a run measured' \
    calibrate --seconds 1 -o runs/b/costs.json
sed 's/"device": *"cpu"/"device": "cuda"/' fit.json > card.json
refused 2 '-o card.json: it is a table of device cuda, and device cpu is measured' calibrate --seconds 1 -o card.json
cmp -s before.json runs/a/costs.json && grep -q '"cuda"' card.json || fail "a table is gone"
mkdir runs/far && sed -E 's/"(model name|CPU part)": *"[^"]*"/"\1":"Other CPU"/; s/"oneDNN": *"[^"]*"/"oneDNN":"0.1"/' \
    runs/a/costs.json > runs/far/costs.json
"$orrery" calibrate --refit runs/far > far.json 2> far.txt || { cat far.txt; fail "refit of a run elsewhere"; }
has "costs are of another machine: |, here " far.txt
refused 2 '--refit takes no script' calibrate "$source_root/scripts/gpt.lua" --refit runs/a
sed 's/"threads": *"1"/"threads": "7"/; s/"\(model[^"]*\)": "[^"]*"/"\1": "another"/' runs/b/costs.json > other.json
cmp -s other.json runs/b/costs.json && fail "the test makes no other machine"
refused 2 'another machine' calibrate --refit runs/a other.json -o new.json
echo "1 passed, 0 failed"
