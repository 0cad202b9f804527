#!/usr/bin/env bash
# orrery simulate and plan: a script on a cluster that is not here; what cannot be is refused with place and figures.
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
less "$(value mfu plain.json)" "$(value mfu_full plain.json)" || fail "masked attention does not count in full"
simulate --json > again.json && cmp -s plain.json again.json || fail "two forecasts differ"
simulate --json --slow 3:2 > slow.json || fail "no slow rank"
less "$(value step_s plain.json)" "$(value step_s slow.json)" || fail "a slow rank costs nothing"
[ "$(value slowest_rank slow.json)" = 3 ] || fail "the slow rank is not named"
simulate --json --set script.zero=3 > zero.json || fail "no ZeRO-3"
less "$(value memory_bytes zero.json)" "$(value memory_bytes plain.json)" || fail "ZeRO-3 saves no memory"
simulate -o step.svg > /dev/null || fail "no drawing"
grep -q '<svg xmlns=' step.svg && grep -q 'MFU' step.svg || fail "the drawing is no SVG with its figures"
for axis in pp dp tp; do
    [ "$(grep -c ">$axis</text>" step.svg)" -ge 2 ] || fail "the drawing has no lane of $axis for each pipeline rank"
done
for shown in '<path class="exposed"' '<path class="busy"' '<path class="once"' '>time, in ms<'; do
    grep -q "$shown" step.svg || fail "the drawing has no $shown"
done

refused 2 "128 missing" simulate --set mesh.dp=64 --set train.sequences_per_step=512
refused 2 "RANK:TIMES" simulate --slow 8:2
refused 2 "RANK:TIMES" simulate --slow 1:0.5
refused 2 "megatron_bridge, nanotron, nemo, orrery, simumax_megatron, torchtitan" simulate --software magic
refused 2 "  name one of them, or give a path that ends in .toml" simulate --software magic
refused 2 "unknown axis" simulate --mapping ep
refused 2 "rank 0 needs " simulate --set script.layers=64 --set script.embed=16384 --set script.heads=128
refused 2 "No such file" $orrery simulate $gpt --config small.toml --cluster nowhere.toml
sed 's/memory_gb_s/memory_gbs/' "$clusters/h100.toml" > wrong.toml
refused 2 'did you mean "memory_gb_s"?' $orrery simulate $gpt --config small.toml --cluster wrong.toml

head -c 3000 /dev/urandom > wrong.toml
refused 2 "wrong.toml" $orrery simulate $gpt --config small.toml --cluster wrong.toml
: > wrong.toml
refused 2 "missing accelerator, expected a table" $orrery simulate $gpt --config small.toml --cluster wrong.toml
refused 2 "is a folder" $orrery simulate $gpt --config small.toml --cluster "$clusters"

# Where results go is looked at before the work, and nothing is made there before it is done.
for option in -o --trace; do
    file=away.svg
    refused 2 "there is no folder no/such" simulate $option no/such/$file
    refused 2 "expected the name of a file" simulate $option ''
done
mkdir folder.svg
refused 2 "is a folder" simulate -o folder.svg
refused 2 "is a folder" simulate --trace folder.svg
refused 2 ".svg" simulate -o step.png
refused 2 "unknown axis" simulate --trace away.json --mapping ep
[ ! -e away.json ] || fail "a forecast that failed left a trace"
cp step.svg before.svg
(trap '' XFSZ; ulimit -f 1; simulate -o step.svg --trace step.json > said.txt 2>&1)
[ $? -eq 1 ] && grep -q "cannot write step.svg: File too large" said.txt || { cat said.txt; fail "a full disk"; }
cmp -s step.svg before.svg && [ -z "$(ls | grep '\.new\.')" ] || fail "a full disk destroys the drawing before it"
ln -s step.svg link.svg
simulate -o link.svg --slow 3:2 > /dev/null && [ -L link.svg ] && ! cmp -s step.svg before.svg || fail "a link"

# What would pass silently.
sed 's/H100-80G-SXM/H100-80G-SMX/' "$clusters/h100.toml" > wrong.toml
refused 2 'is "H100-80G-SMX", for which no rate is known' $orrery simulate $gpt --config small.toml --cluster wrong.toml
refused 2 "the mesh pp=2 dp=2 tp=1 has no tp collectives" simulate --set mesh.tp=1 --tp-chunks 2
for form in :2 1: 1 ' 1:2' 1:inf 1:nan; do refused 2 "RANK:TIMES" simulate --slow "$form"; done
refused 2 "duplicate rank 3" simulate --slow 3:2 --slow 3:4
for form in nan inf -1 ''; do refused 2 "expected a number from 0 to 10" simulate --jitter "$form"; done
for form in nan inf -1 0; do refused 2 "expected a number from 1e-06" $orrery simulate $gpt --link-gbit $form; done
refused 2 "expected a number from 0 to 1000000000" simulate --restart-s nan
simulate --set mesh.dp=1 | grep -q "^failures .*no \[storage\]" || fail "a failure rate without storage says nothing"
{ echo 'colour = "red"'; cat "$clusters/h100.toml"; } > wrong.toml
refused 2 "colour" $orrery simulate $gpt --config small.toml --cluster wrong.toml

# Other software: short names, your own file, and what the script does otherwise.
simulate --software orrery --json > orrery.json && cmp -s orrery.json plain.json || fail "orrery is not the default"
for name in megatron nemo torchtitan deepspeed; do
    simulate --software $name --json > $name.json || fail "no forecast of $name"
    ! cmp -s <(value step_s $name.json) <(value step_s plain.json) || fail "$name runs as orrery does"
done
simulate --software nemo > said.txt || fail "no report of nemo"
runs_of_nemo="[1-9][0-9]* published runs of nemo, predicted by fits without them"
grep -q "^ .*: p10 to p90 by the errors on $runs_of_nemo\$" said.txt &&
    grep -q "^software    nemo" said.txt && grep -q "; the script does not (script.sequence)" said.txt ||
    { cat said.txt; fail "nemo: no interval, or no differences printed"; }
simulate | grep -q "by the errors on [1-9][0-9]* published runs of all software" || fail "no interval of orrery"
sed '/^\[launches\]/,/^value/s/queued/eager/' "$source_root/configs/software/orrery.toml" > own.toml
simulate --software own.toml --json > own.json || fail "no forecast of a file of one's own"
sed 's/^value = "queued"/value = "fast"/' "$source_root/configs/software/orrery.toml" > wrong.toml
refused 2 'launches.value is "fast"' simulate --software wrong.toml
grep -q "^orrery: wrong.toml:[1-9][0-9]*:" said.txt || { cat said.txt; fail "no place of the wrong value"; }
refused 2 "--trace and --software cannot be combined" simulate --software nemo --trace away.json
trains='^script_options.train(program, optimizer, .*'
sed "s/$trains/program:train_with(optimizer, { precision = \"fp8\" })/" $gpt > fp8.lua
refused 2 'the script sets precision "fp8", which compiles orrery'"'s own 8-bit kernels" $orrery simulate fp8.lua \
    --config small.toml --cluster "$clusters/h100.toml" --software nemo
simulate --software nemo --set script.sequence=true --set 'train.precision="fp8"' --json > fp8.json ||
    fail "no forecast of nemo in 8 bits"
python3 - << 'CHECK' || fail "JSON of other software"
import json
plain, nemo, own, fp8 = (json.load(open(name + ".json")) for name in ("plain", "nemo", "own", "fp8"))
assert plain["software"] == {"name": "orrery", "differences": []}, plain["software"]
of_plain, of_nemo, of_own = (one["step_s_interval_from"] for one in (plain, nemo, own))
assert of_plain["software"] is None and of_own == of_plain, of_own
assert of_nemo["software"] == "nemo" and 0 < of_nemo["published_runs"], of_nemo
assert nemo["step_s_low"] < nemo["step_s_high"], nemo
assert len(nemo["software"]["differences"]) == 1 and len(fp8["software"]["differences"]) == 0, nemo["software"]
assert nemo["memory_bytes"] > 1.5 * 2**30 > plain["memory_bytes"], (nemo["memory_bytes"], plain["memory_bytes"])
assert own["software"]["name"] == "own" and own["step_s"] != plain["step_s"], own["software"]
CHECK

# Two kinds of node: the slow one decides in either order, MFU is over both, and each rank has its own kind's memory.
kinds() {
    local name
    for name in "$@"; do
        local bf16=989 memory=80
        [ "$name" = fast ] || bf16=200
        [ "$name" != small ] || memory=${small_gib:-0.05}
        printf '[accelerator.%s]\ngeneration = "hopper"\nmemory_gib = %s\nmemory_gb_s = 3350\n' "$name" "$memory"
        printf 'dense_tflops = { bf16 = %s }\n[node.%s]\naccelerator = "%s"\naccelerators = %s\ncount = 1\n' \
            "$bf16" "$name" "$name" "${of_node:-4}"
        printf 'scale_up = { kind = "nvswitch", gb_s = 450 }\n'
        printf 'nics = { kind = "infiniband", count = 4, gb_s = 50 }\n'
    done
    printf '[fabric]\nkind = "single_switch"\n'
}
mixed() { $orrery simulate $gpt --config small.toml --cluster "$1.toml" --json --set mesh.pp=1 --set mesh.dp=4; }
for names in "fast slow" "slow fast" "slow old" "fast small"; do kinds $names > "${names/ /_}.toml"; done
mixed fast_slow > fast_slow.json && mixed slow_fast > slow_fast.json && mixed slow_old > slow_old.json ||
    fail "no forecast of two kinds of node"
python3 - <<'CHECK' || fail "two kinds of node are priced wrong"
import json
mixed, turned, slow = (json.load(open(f"{name}.json")) for name in ("fast_slow", "slow_fast", "slow_old"))
for key in ("step_s", "mfu", "memory_bytes"):
    assert abs(mixed[key] / turned[key] - 1) < 1e-9, key
assert abs(mixed["step_s"] / slow["step_s"] - 1) < 1e-9
assert abs(mixed["mfu"] / slow["mfu"] * (989 + 200) / 2 / 200 - 1) < 1e-9
assert mixed["waiting"] > 0.05 and slow["waiting"] < 0.01 and mixed["slowest_rank"] == 4 and turned["slowest_rank"] == 0
CHECK
refused 2 "rank 4 needs " mixed fast_small
$orrery simulate $gpt --config small.toml --cluster fast_slow.toml | grep -q "^gpt on fast_slow: " ||
    fail "a cluster without a name has not its file's"
# Where the smaller kind decides what fits, a higher ZeRO stage is tried, and each choice is told against what it has.
small_gib=0.2 of_node=2 kinds fast small > two_kinds.toml
plan_mixed() {
    $orrery plan $gpt --config small.toml --cluster two_kinds.toml --ranks 4 --most-tp 1 --most-pp 1 "$@"
}
plan_mixed --json > two_kinds.json || fail "nothing fits on two kinds of node, where ZeRO-3 does"
python3 - <<'CHECK' || fail "the plan on two kinds of node holds choices against another memory than theirs"
import json
plan = json.load(open("two_kinds.json"))
small = int(0.2 * 2 ** 30)
assert plan["choices"][0]["fits"] and plan["choices"][0]["zero"] == 3, plan["choices"][0]
assert not all(choice["fits"] for choice in plan["choices"])
for choice in plan["choices"]:
    assert choice["memory_limit_bytes"] == small and choice["fits"] == (choice["memory_bytes"] <= small), choice
CHECK
plan_mixed -o two_kinds.svg > two_kinds.txt && grep -q "^gpt on two_kinds: 4 ranks, " two_kinds.txt &&
    grep -q "where rank [23] needs .* and has 204.8 MiB" two_kinds.txt &&
    grep -q ">204.8 MiB<" two_kinds.svg || { cat two_kinds.txt; fail "the small kind's memory is not told"; }

plan() { $orrery plan $gpt --config small.toml --cluster "$clusters/h100.toml" --ranks 8 "$@"; }
plan --jobs 1 -o plan.svg > plan.txt || fail "no plan"
grep -q "has 79.6 GiB" plan.svg && [ "$(grep -c 'class="lead"' plan.svg)" -gt 1 ] ||
    fail "the plan's picture has no limit, or no numbers"
plan --software nemo --keep zero,schedule,recompute,sequence,samples > nemo.txt || fail "no plan of nemo"
grep -q "^software nemo" nemo.txt || { cat nemo.txt; fail "the plan does not say which training software runs it"; }
# How many are judged at the same time changes nothing, not even the order of equals.
plan --jobs 3 > plan3.txt || fail "no plan in processes"
diff <(sed 's/, [0-9.]* s$//' plan.txt) <(sed 's/, [0-9.]* s$//' plan3.txt) || fail "--jobs changes the plan"
grep -q "^left out: [0-9]* choices, as " plan.txt || { cat plan.txt; fail "nobody says what was left out and why"; }
# What --keep holds is what the configuration says.
plan --keep zero,schedule,recompute,sequence --set script.zero=3 --set 'script.pipeline="zbv"' \
    --set 'script.recompute="all"' --set script.sequence=true > kept.txt ||
    { cat kept.txt; fail "no plan of what is kept"; }
# step, both MFU, memory and its unit, pp, dp, cp, tp, samples, ZeRO stage, schedule
awk '/step s/ { getline; exit !($11 == 3 && ($12 == "zbv" || $6 == 1) && / yes / && / all /) }' kept.txt ||
    { cat kept.txt; fail "the plan tells other options than those that it keeps"; }
for kept in "--most-tp 1" "--keep mesh --set mesh.tp=1 --set mesh.dp=4"; do
    refused 2 "no mesh in the search has tp collectives to split" plan --tp-chunks 2 $kept
done
# A list of stages fits one mesh and schedule.
refused 2 "script.stages = 3,5: plan varies the mesh and the schedule" plan --keep mesh --set script.stages=3,5
plan --keep mesh,schedule --set script.stages=3,5 > stages.txt || { cat stages.txt; fail "no plan with given stages"; }
# HSDP: the axis that ZeRO does not split is told apart from dp, by any name.
for axis in rep pod; do
    hybrid=(--set train.microbatches=2 --set mesh.pp=1 --set mesh.tp=1 --set mesh.$axis=4 --set script.replicate=$axis)
    refused 2 "mesh.$axis = 4: the search does not vary it" plan "${hybrid[@]}"
    plan --keep mesh,recompute,sequence "${hybrid[@]}" --json > $axis.json || fail "no plan with mesh.$axis"
    [ "$(python3 -c 'import json,sys; best = json.load(open(sys.argv[1]))["choices"][0]
print(best["rep"], best["dp"], best["tp"])' $axis.json)" = "4 2 1" ] ||
        { cat $axis.json; fail "mesh.$axis is part of dp"; }
done
refused 2 ".svg" plan -o plan.png
refused 2 "there is no folder no/such" plan -o no/such/plan.svg
refused 2 "expected the name of a file" plan -o ''
refused 2 "the mesh of --keep mesh has 8" $orrery plan $gpt --config small.toml \
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
# What the script gives is not searched, and every choice has it.
sed "s/$trains/program:train_with(optimizer, { microbatches = 2 })/" $gpt > micros.lua
micros() { $orrery plan micros.lua --config small.toml --cluster "$clusters/h100.toml" --ranks 8 "$@"; }
micros > micros.txt 2>&1 || { cat micros.txt; fail "no plan of a script that gives microbatches"; }
grep -q "^the script sets microbatches (micros.lua:[0-9]*), so that they are not searched$" micros.txt ||
    { cat micros.txt; fail "nothing says that microbatches are given"; }
! grep -q "^microbatches" micros.txt || { cat micros.txt; fail "the plan sets microbatches that are given"; }
micros --json 2> /dev/null | python3 -c 'import json, sys
choices = json.load(sys.stdin)["choices"]
assert len(choices) > 3 and all(c["dp"] * c["samples"] * 2 == 32 for c in choices), choices' ||
    fail "a choice has other microbatches than the script gives"
refused 2 "no such option" $orrery plan $gpt --config small.toml --cluster "$clusters/h100.toml" --keep colour
refused 2 "too few" $orrery plan $gpt --config small.toml --cluster "$clusters/h100.toml" --ranks 1000

# Experts: the load decides how many rows their GEMMs have; plan searches an ep that divides experts and ranks.
moe=(--set 'script.model="mixtral"' --set script.experts=6 --set script.capacity=2.0)
for load in 1 1.5 2 9; do
    simulate "${moe[@]}" --imbalance $load --json > load$load.json || fail "no forecast of a load of $load"
done
simulate "${moe[@]}" --json > full.json || fail "no forecast of experts"
less "$(value step_s load1.json)" "$(value step_s load1.5.json)" &&
    less "$(value step_s load1.5.json)" "$(value step_s load2.json)" || fail "a larger load costs nothing"
for load in 2 9; do
    [ "$(value step_s load$load.json)" = "$(value step_s full.json)" ] ||
        fail "a load of $load fills all slots, and does not cost what full slots cost"
done
simulate "${moe[@]}" --imbalance 4 |
    grep -q "^imbalance   4 times the mean load fills 100.0 % of an expert's slots, 49.9 % of its tokens find none" ||
    fail "the load is not reported"
# The step has the smallest capacity, the memory is that of the largest.
again=("${moe[@]}" --set 'script.overflow="again"' --set script.capacity=1.0 --set script.max_capacity=3.0)
simulate "${again[@]}" --json > again.json || fail "no forecast of several capacities"
simulate "${moe[@]}" --set script.capacity=3.0 --json > all.json || fail "no forecast of the largest capacity"
less "$(value step_s again.json)" "$(value step_s full.json)" && [ "$(value capacity again.json)" = 1.0 ] ||
    fail "the step is not priced with the smallest capacity"
less "$(value memory_bytes all.json)" "$(value memory_bytes again.json)" || fail "memory is not that of the largest"
simulate "${again[@]}" | grep -q "^capacity    time is of the smallest capacity of 1, 1.25, 1.5, 2, 3," ||
    fail "the capacities are not reported"
refused 2 "no grouped_matmul over slots of experts" simulate --imbalance 1.5
refused 2 "expected a number from 1 to 1000000" simulate "${moe[@]}" --imbalance 0.5
plan "${moe[@]}" --keep schedule,recompute,sequence,samples --most-pp 1 --most-tp 1 --json > moe.json ||
    fail "no plan of experts"
python3 - << 'CHECK' || fail "the search of ep"
import json
choices = json.load(open("moe.json"))["choices"]
assert {choice["ep"] for choice in choices} == {1, 2}, choices     # 8 ranks, 6 experts
for choice in choices:
    assert choice["dp"] * choice["ep"] == 8 and "mesh.ep=%d" % choice["ep"] in choice["sets"], choice
by = {(choice["ep"], choice["zero"]): choice for choice in choices}
assert by[2, 1]["memory_bytes"] < by[1, 1]["memory_bytes"], by
CHECK
plan "${moe[@]}" --keep schedule,recompute,sequence,samples,zero --most-pp 1 --most-tp 1 --max-ep 1 \
    --imbalance 2 > busy.txt || fail "no plan with a load of experts"
grep -q "^ *step s .* dp   ep   cp" busy.txt || fail "the plan's table has no ep"
grep -q "^times assume that each expert of the busiest rank has 2 times the mean load" busy.txt ||
    fail "plan does not print --imbalance"
refused 2 "--max-ep 2: there is no ep to search" plan --max-ep 2
refused 2 "mesh.ep = 2: the search cannot vary it" plan --set mesh.ep=2 --set mesh.dp=1
