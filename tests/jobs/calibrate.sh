#!/usr/bin/env bash
# `orrery calibrate`: a plan's kernels and its transport, a grid, and what it refuses.
source "$(dirname "$0")/lib.sh"
tiny=("$source_root/scripts/gpt.lua" --set train.steps=10 --set data.path= --set data.vocab=128
    --set data.tokens_per_sequence=32 --set train.sequences_per_step=4
    --set script.layers=2 --set script.embed=48 --set script.heads=3 --set mesh.dp=2)
"$orrery" calibrate "${tiny[@]}" --threads 1 --seconds 4 --bytes 4096,65536 -o plan.json > plan.log 2>&1 ||
    { cat plan.log; fail "a script"; }
grep -qE "^plan.json: [0-9]+ rows of kernels, 10 rows of communication$" plan.log ||
    { cat plan.log; fail "what it says"; }
"$orrery" check "${tiny[@]}" --set run.threads_per_rank=1 --print plan > plan.txt || fail "the plan"
python3 - plan.json << 'CHECK' || fail "the table of a plan"
import json, re, sys
table = json.load(open(sys.argv[1]))
assert table["format"] == "orrery costs" and table["made_by"] == "calibrate" and table["machine"], table["made_by"]
assert all(n.startswith("the time was over before ") for n in table["notes"]), table["notes"]
for k in table["kernels"]:
    assert k["seconds"] > 0 and k["threads"] == 1 and k["samples"] >= 3 and k["spread"] >= 0, k
    assert all(re.fullmatch(r"[a-z0-9]+\[[0-9,]*\]", t) for t in k["inputs"] + k["outputs"]), k
ops = {line.split()[3].split("{")[0] for line in open("plan.txt") if re.match(r" +[0-9]+ \S+ +q0 ", line)} - {"copy"}
found = {k["op"] for k in table["kernels"]}
assert found <= ops and (table["notes"] or found == ops), (found ^ ops)
rows = [(w["op"], w["bytes"]) for w in table["communication"]]
assert rows == [(op, b) for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "message")
                for b in (4096, 65536)], rows
for w in table["communication"]:
    assert w["transport"] == "shm" and w["ranks"] == 2 and w["seconds"] > 0 and w["processor_seconds"] >= 0, w
CHECK
echo "a plan's kernels and its transport"

"$orrery" calibrate --threads 1 --seconds 2 --transports gloo,nosuch --ranks 2,3 --bytes 4096 > grid.json 2> grid.log ||
    { cat grid.log; fail "a grid"; }
python3 - grid.json << 'CHECK' || fail "the table of a grid"
import json, sys
table = json.load(open(sys.argv[1]))
over = [n for n in table["notes"] if n.startswith("the time was over before ")]
assert len(table["kernels"]) > 300 or over, len(table["kernels"])
rows = [w for w in table["communication"] if w["op"] != "message"]
assert {(w["transport"], w["ranks"]) for w in rows} == {("gloo", 2), ("gloo", 3)}
missing = [n for n in table["notes"] if n.startswith("nosuch between 2 ranks is left out: ")]
assert len(missing) == 1 and "nosuch" in missing[0], table["notes"]
CHECK
echo "a grid, over two sizes of group"

# refused WORDS ARGUMENTS...
refused() {
    local words=$1 out word
    shift
    out=$("$orrery" calibrate --seconds 1 "$@" 2>&1)
    [ $? -eq 2 ] || fail "calibrate $*: it was taken: $out"
    word=$(missing_word "$words" "$out")
    [ -z "$word" ] || fail "calibrate $*: no \"$word\" in: $out"
}
refused "--ranks 1,2: expected numbers from 2 to 1024" --ranks 1,2
refused "--transports nccl|take shm, gloo or ucx" --transports nccl
refused "no script nothing.lua" nothing.lua
"$orrery" calibrate --help | grep -q -- "--transports" || fail "help without a script"
echo "1 passed, 0 failed"
