#!/usr/bin/env bash
# `orrery calibrate`: a plan's kernels and its transport, a grid, and what it refuses.
source "$(dirname "$0")/lib.sh"
tiny=("$source_root/scripts/gpt.lua" --set train.steps=10 --set data.path= --set data.vocab=128
    --set data.tokens_per_sequence=32 --set train.sequences_per_step=4
    --set script.layers=2 --set script.embed=48 --set script.heads=3 --set mesh.dp=2)
"$orrery" calibrate "${tiny[@]}" --threads 1 --seconds 4 --bytes 4096,65536 -o plan.json > plan.log 2>&1 ||
    { cat plan.log; fail "a script"; }
grep -qE "^plan.json: table of measured costs written, [0-9]+ rows of kernels and 10 rows of communication$" plan.log ||
    { cat plan.log; fail "what it says"; }
"$orrery" check "${tiny[@]}" --set run.threads_per_rank=1 --print plan > plan.txt || fail "the plan"
python3 - plan.json << 'CHECK' || fail "the table of a plan"
import json, re, sys
table = json.load(open(sys.argv[1]))
assert table["format"] == "orrery costs" and table["made_by"] == "calibrate" and table["machine"], table["made_by"]
assert all(n.startswith("the time limit was reached before ") for n in table["notes"]), table["notes"]
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
"$orrery" calibrate "${tiny[@]}" --set run.transport=threads --threads 1 --seconds 2 -o threads.json > plan.log 2>&1 ||
    { cat plan.log; fail "ranks that are threads"; }
python3 - threads.json << 'CHECK' || fail "the table of threads"
import json, sys
rows = json.load(open(sys.argv[1]))["communication"]
assert {w["transport"] for w in rows} == {"threads"}, rows
assert all(w["processor_seconds"] < 1.5 * w["seconds"] for w in rows), rows
sizes = {w["bytes"] for w in rows if w["op"] == "all_reduce"}
usual = {1024 * 4**i for i in range(9)}
assert usual < sizes and len(sizes - usual) >= 2, sizes
CHECK
echo "ranks that are threads, and the sizes of a plan's messages"

mkdir plugins && echo "nobody has such a card" > plugins/liborrery_transport_card.why
export XDG_CACHE_HOME=$work/cache
"$orrery" calibrate --threads 1 --seconds 2 --transports gloo,card --ranks 2,3 --bytes 4096 \
    --set "plugins.path=[\"$work/plugins\"]" > grid.json 2> grid.log || { cat grid.log; fail "a grid"; }
python3 - grid.json << 'CHECK' || fail "the table of a grid"
import json, sys
table = json.load(open(sys.argv[1]))
over = [n for n in table["notes"] if n.startswith("the time limit was reached before ")]
assert len(table["kernels"]) > 300 or over, len(table["kernels"])
rows = [w for w in table["communication"] if w["op"] != "message"]
assert {(w["transport"], w["ranks"]) for w in rows} == {("gloo", 2), ("gloo", 3)}
missing = [n for n in table["notes"] if n.startswith("transport card between 2 ranks is not measured: ")]
assert len(missing) == 1 and "nobody has such a card" in missing[0], table["notes"]
CHECK
grep -q "^transport card between 2 ranks is not measured: " grid.log ||
    { cat grid.log; fail "what is left out is not told"; }
[ ! -e cache/orrery/costs ] || fail "a table is kept that nobody asked for"
echo "a grid, over two sizes of group"

# rows FILE: of kernels, of communication.
rows() {
    python3 -c 'import json, sys
table = json.load(open(sys.argv[1]))
print(len(table["kernels"]), len(table["communication"]))' "$1"
}
keep() { "$orrery" calibrate --threads 1 --keep "$@" > keep.log 2>&1 || { cat keep.log; fail "calibrate --keep $*"; }; }
ln -s behind.json link.json
keep --seconds 1 --transports shm --bytes 4096 -o link.json
kept=$(sed -n 's/^\(.*costs.*\): .* of kernels.*/\1/p' keep.log)
[ -L link.json ] && cmp -s link.json "$kept" || { cat keep.log; fail "-o and --keep differ, or a link is replaced"; }
read -r before wires <<< "$(rows "$kept")"
[ "$wires" -eq 5 ] || fail "$wires rows of communication are kept"
keep --seconds 0.01 --transports none
read -r after wires <<< "$(rows "$kept")"
[ "$after" -ge "$before" ] && [ "$wires" -eq 5 ] || { cat keep.log; fail "rows that were not measured are gone"; }
grep -qE "^  [0-9]+ rows? measured now, .*; [0-9]+ of the saved table stay unchanged$" keep.log ||
    { cat keep.log; fail "what is kept"; }
echo "{" > "$kept"
keep --seconds 0.01 --transports none
grep -q "^$kept: not valid json.*it is replaced$" keep.log || { cat keep.log; fail "a damaged table that is replaced"; }
rows "$kept" > /dev/null || fail "a damaged table stays"
"$orrery" calibrate --threads 1 --seconds 0.01 --transports none -o /dev/null > null.log 2>&1 && [ -c /dev/null ] ||
    { cat null.log; fail "/dev/null"; }
echo "what is kept is joined"

# refused WORDS ARGUMENTS...
refused() {
    local words=$1 out word
    shift
    out=$("$orrery" calibrate --seconds 1 "$@" 2>&1)
    [ $? -eq 2 ] || fail "calibrate $*: it was taken: $out"
    word=$(missing_word "$words" "$out")
    [ -z "$word" ] || fail "calibrate $*: no \"$word\" in: $out"
}
refused "--ranks 1,2: expected numbers of ranks from 2 to 1024" --ranks 1,2
[ "$(nproc)" -ge 16 ] || refused "--ranks 2,1000: 1000 ranks on |the maximum is 64 for each processor" --ranks 2,1000
refused "script nothing.lua not found" nothing.lua
refused 'no transport "gloa"|there are: gloo, |did you mean "gloo"?' --transports shm,gloa
refused 'no transport ""|there are: gloo, ' --transports ""
refused "-o '': expected the name of a file" -o ""
refused "-o none/here.json: there is no folder none" -o none/here.json
refused "-o $work: is a folder" -o "$work"
for seconds in nan inf -1; do refused "--seconds: $seconds: expected a number from" --seconds "$seconds"; done
"$orrery" calibrate --help | grep -q -- "--transports" || fail "help without a script"
echo "1 passed, 0 failed"
