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
what_if --set mesh.dp=4 > four.txt || fail "four ranks"
has "dp=4, 4 ranks|scaled by their work|of the run as it was" four.txt
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
refused 2 '--link-us: of which link' simulate runs/a --link-us 5
refused 2 'no cluster and no table|--cluster FILE|--table FILE' simulate "$source_root/scripts/gpt.lua" \
    --set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=4
refused 2 'no table of measured costs nowhere.json' simulate runs/a --table nowhere.json
echo '{"format": "other"}' > wrong.json
refused 2 'wrong.json: it is no table of measured costs' simulate runs/a --table wrong.json
refused 2 'simulate.table: no table of measured costs none.json' simulate runs/a --set simulate.table=none.json
refused 2 'runs/a is a run of nowhere.lua, which is not there' simulate runs/a --set run.script=nowhere.lua
cp -r runs/a runs/two
sed -E 's/"hosts": *"1"/"hosts": "2"/' runs/a/costs.json > runs/two/costs.json
refused 2 'the run had 2 hosts|--cluster FILE' simulate runs/two
refused 2 'simulate.table: no table of measured costs none.json' run runs/a --set simulate.table=none.json
mkdir runs/empty
refused 2 'runs/empty is no run' simulate runs/empty
cp -r runs/a runs/young && rm runs/young/costs.json
refused 2 'runs/young has no costs.json|--table FILE' simulate runs/young
echo "a run, what if, and what is refused"

"$orrery" calibrate --refit runs/a -o fit.json > fit.txt || fail "refit into a new table"
has "fit.json: |rows of kernels" fit.txt
"$orrery" calibrate --refit runs/a --keep > kept.txt || fail "a table that is kept"
grep -q "^$XDG_CACHE_HOME/orrery/costs/[0-9a-f]*.json: " kept.txt || { cat kept.txt; fail "where it is kept"; }
run_tiny runs/b 12 > told.txt 2>&1 || { cat told.txt; fail "a run with a table"; }
has "where the time went|predicted against measured|matmul|dp: all_reduce|the rest|as measured" told.txt
"$orrery" calibrate --refit runs/a runs/b/costs.json -o fit.json > fit.txt || fail "refit of two"
"$orrery" simulate runs/young --table fit.json > young.txt || fail "a run by another's table"
has "fit.json|what is kept for this machine" young.txt
# A damaged table ends no run.
for file in "$XDG_CACHE_HOME"/orrery/costs/*.json; do echo "{" > "$file"; done
run_tiny runs/c 6 > damaged.txt 2>&1 || { cat damaged.txt; fail "a damaged table ends a run"; }
has "nothing predicted: |not valid json" damaged.txt
refused 2 'runs/young: there is no runs/young/costs.json' calibrate --refit runs/young -o fit.json
refused 2 'made by calibrate, expected a run' calibrate --refit fit.json -o new.json
refused 2 '--refit measures nothing' calibrate "$source_root/scripts/gpt.lua" --refit runs/a
sed 's/"threads": *"1"/"threads": "7"/; s/"\(model[^"]*\)": "[^"]*"/"\1": "another"/' runs/b/costs.json > other.json
cmp -s other.json runs/b/costs.json && fail "the test makes no other machine"
refused 2 'another machine' calibrate --refit runs/a other.json -o new.json
echo "1 passed, 0 failed"
