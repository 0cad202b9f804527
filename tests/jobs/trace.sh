#!/usr/bin/env bash
# `run --trace`: one step of all ranks as a trace, and costs.json of every run.
source "$(dirname "$0")/lib.sh"

# must LOG COMMAND...: it succeeds.
must() {
    local log=$1
    shift
    "$@" > "$log" 2>&1 || { cat "$log"; fail "$log: exit code $?"; }
}

# A pipeline with data parallelism beside it: messages and collectives.
must run.log run_tiny run 12 --trace step.json --set mesh.pp=2 --set train.microbatches=2
grep -q "^trace of step 10: step.json, [0-9]* bars; open it in ui.perfetto.dev$" run.log ||
    { cat run.log; fail "the run does not tell of its trace"; }
[ "$(grep -c "^trace of" run.log)" = 1 ] || fail "more than one trace"
cat > check_trace.py << 'CHECK'
import collections, json, sys
trace = json.load(open(sys.argv[1]))
ranks, step = int(sys.argv[2]), sys.argv[3]
assert trace["otherData"].get("step", "predicted") == step, trace["otherData"]
events = trace["traceEvents"]
threads = {e["tid"]: e["pid"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
lanes = collections.defaultdict(set)
for e in events:
    if e["ph"] == "M" and e["name"] == "thread_name":
        assert threads[e["tid"]] == e["pid"], "two processes share thread %d" % e["tid"]
        lanes[e["pid"]].add(e["args"]["name"])
assert sorted(lanes) == list(range(ranks)), sorted(lanes)
for rank in range(ranks):
    assert lanes[rank] == {"step", "compute", "dp", "pp"}, lanes[rank]
bars = [e for e in events if e["ph"] == "X"]
by_rank = collections.defaultdict(set)
for e in bars:
    assert e["ts"] >= 0 and e["dur"] >= 0, e
    by_rank[e["pid"]].add(e["name"])
for rank in range(ranks):
    whole = "predicted step" if step == "predicted" else "step " + step
    assert {whole, "matmul", "adamw", "all_reduce dp"} <= by_rank[rank], by_rank[rank]
assert any(".lua:" in e["args"].get("script", "") for e in bars), "no bar names a script line"
sends = {e["id"]: e for e in events if e["ph"] == "s"}
receives = {e["id"]: e for e in events if e["ph"] == "f"}
assert sends and sends.keys() == receives.keys(), (sorted(sends), sorted(receives))
for id in sends:
    assert sends[id]["pid"] != receives[id]["pid"] and sends[id]["ts"] <= receives[id]["ts"], id
print(len(bars), "bars,", len(sends), "messages")
CHECK
python3 check_trace.py step.json 4 10 || fail "the trace"

# The predicted step comes from the same writer, and stands up to the same look.
must simulated.log "$orrery" simulate "$source_root/scripts/gpt.lua" \
    --cluster "$source_root/configs/clusters/h100.toml" --set mesh.pp=2 --set mesh.dp=2 \
    --set train.microbatches=2 --set train.sequences_per_step=4 --set train.steps=12 \
    --set train.precision=bf16 --set data.tokens_per_sequence=32 --set data.vocab=256 --set script.layers=2 \
    --set script.embed=48 --set script.heads=3 --trace predicted.json
grep -q "^trace of the predicted step: predicted.json, [0-9,]* bars; open it in ui.perfetto.dev$" simulated.log ||
    { cat simulated.log; fail "simulate does not tell of its trace"; }
python3 check_trace.py predicted.json 4 predicted || fail "the predicted trace"

# Every run leaves its costs: of each kernel and message that a step has.
python3 - run/costs.json << 'CHECK' || fail "costs.json"
import json, sys
costs = json.load(open(sys.argv[1]))
assert costs["format"] == "orrery costs" and costs["made_by"] == "run", costs
facts = costs["facts"]
assert facts["ranks"] == "4" and facts["hosts"] == "1" and facts["steps"] == "11", facts
assert costs["notes"] == [], costs["notes"]
assert {k["op"] for k in costs["kernels"]} >= {"matmul", "adamw", "attention"}
assert all(k["seconds"] > 0 and k["least_seconds"] > 0 for k in costs["kernels"])
ops = {(w["axis"], w["op"]) for w in costs["communication"]}
assert ("dp", "all_reduce") in ops and ("pp", "message") in ops, ops
assert all(0 < w["seconds"] <= w["mean_seconds"] * 1.000001 and w["ranks"] == 2 for w in costs["communication"])
step = costs["step_seconds"]
assert step["compute"] > 0 and step["compute"] + step["communication"] + step["waiting"] <= step["step"], step
print(len(costs["kernels"]), "kernels,", len(costs["communication"]), "rows of communication")
CHECK

# Collectives on a thread of their own show when they really ran.
must beside.log run_tiny beside 3 --set run.trace=beside.json --set run.trace_step=3 --set run.overlap=on
grep -q "^trace of step 3: beside.json" beside.log || { cat beside.log; fail "run.trace_step"; }
grep -q '"hand over all_reduce dp"' beside.json || fail "no collective was handed over"

# A shorter run: its last step. The losses are those of a run that is not traced.
must short.log run_tiny short 4 --trace short.json
grep -q "^trace of step 4: short.json" short.log || { cat short.log; fail "a short run's step"; }
must plain.log run_tiny plain 4
[ "$(losses short)" = "$(losses plain)" ] || fail "the trace changes losses"
[ "$(sed -n '/^where the time went$/,$p' plain.log | grep -c trace)" = 0 ] || fail "a trace in the breakdown"
must none.log run_tiny none 1
python3 - none/costs.json << 'CHECK' || fail "costs of one step"
import json, sys
costs = json.load(open(sys.argv[1]))
assert "there was no step behind the first" in costs["notes"][0] and not costs["kernels"], costs
CHECK

# What cannot be, before a step is run.
run_tiny late 4 --trace late.json --set run.trace_step=5 > late.log 2>&1
[ $? -eq 2 ] && grep -q "run.trace_step = 5, but the run ends at step 4" late.log ||
    { cat late.log; fail "a late step"; }
run_tiny away 4 --trace no/such/folder/x.json > away.log 2>&1
[ $? -eq 2 ] && grep -q 'run.trace = no/such/folder/x.json: there is no folder no/such/folder' away.log ||
    { cat away.log; fail "a file in no folder"; }
must again.log run_tiny short 6 --trace again.json --set run.trace_step=2
grep -q "^no trace: step 2 is already done, the run resumes from step 5" again.log ||
    { cat again.log; fail "a past step"; }
echo "1 passed, 0 failed"
