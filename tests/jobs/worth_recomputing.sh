#!/usr/bin/env bash
# What `orrery plan` finds worth recomputing: kinds of op that free a quarter and more of a step's activations for two
# percent of its time, and the name of one that frees next to nothing, which `orrery check` says at the script's line.
# GPT-3 175B on 1,024 A100, in 8 stages of 8-way tensor parallelism with a split sequence, where a recomputed kind may
# delay a collective.
source "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || { echo "skipped: python3, which reads JSON, is not here"; exit 77; }
gpt3=("$source_root/scripts/gpt.lua" --set train.steps=10 --set train.sequences_per_step=1536 --set mesh.pp=8
    --set mesh.dp=16 --set mesh.tp=8 --set train.microbatches=96 --set train.precision='"bf16"' --set data.vocab=51200
    --set data.tokens_per_sequence=2048 --set script.layers=96 --set script.embed=12288 --set script.heads=96
    --set script.zero=1 --set script.loss_tile=0 --set script.sequence=true)
cluster=(--cluster "$source_root/configs/clusters/a100_80g.toml" --cluster-nodes 128)
"$orrery" plan "${gpt3[@]}" "${cluster[@]}" --keep mesh,samples,schedule,zero,sequence,mapping --json > plan.json ||
    fail "no plan"
kinds=$(python3 -c 'import json
all = json.load(open("plan.json"))["recomputations"]
print(*[one["recompute"] for one in all if one["recompute"] not in ("none", "all")])') || fail "no kinds"
grep -q '"recomputation": ".*next to nothing: .*attention' plan.json || fail "the plan does not name attention"
for how in none $kinds; do
    "$orrery" simulate "${gpt3[@]}" "${cluster[@]}" --set script.recompute="\"$how\"" --json > "$how.json" &&
        "$orrery" check "${gpt3[@]}" --set script.recompute="\"$how\"" > "$how.check" || fail "recompute = $how"
done
python3 - $kinds << 'CHECK' || fail "what is worth recomputing is not"
import json, re, sys
def of(how):
    # The first rank holds most micro-batches; check lists it first.
    gib = float(re.search(r"activations +([\d.]+) GiB", open(f"{how}.check").read()).group(1))
    return gib, json.load(open(f"{how}.json"))["step_s"]
plain_gib, plain_s = of("none")
good = []
for kinds in sys.argv[1:]:
    gib, seconds = of(kinds)
    print(f"{kinds}: {100 * (1 - gib / plain_gib):.0f} % of {plain_gib} GiB for {100 * (seconds / plain_s - 1):.1f} %")
    if gib <= 0.75 * plain_gib and seconds <= 1.02 * plain_s: good.append(kinds)
assert good
CHECK
"$orrery" check "${gpt3[@]}" --set script.recompute='"attention"' > check.txt || fail "check"
grep -q "^left: recomputing attention frees .* (recompute, .*gpt.lua:[0-9]*)$" check.txt ||
    { cat check.txt; fail "check does not say that attention frees next to nothing"; }
echo "1 passed, 0 failed"
