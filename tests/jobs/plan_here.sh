#!/usr/bin/env bash
# `orrery plan` without a cluster: ways to run a script on this machine, by what was measured here. Times are this
# machine's: none is held against a bound.
source "$(dirname "$0")/lib.sh"
command -v python3 > /dev/null || { echo "skipped: python3, which reads JSON, is not here"; exit 77; }
export XDG_CACHE_HOME=$work/cache
run_tiny runs/a 12 --set run.threads_per_rank=1 > run.txt 2>&1 || { cat run.txt; fail "the run"; }
plan() { "$orrery" plan runs/a --ranks 2 "$@"; }

# told_alike FOLDER: of the first and the last choice of all.json `simulate` says the same.
told_alike() {
    python3 - "$orrery" "$1" << 'CHECK'
import json, subprocess, sys
choices = json.load(open("all.json"))["choices"]
for choice in (choices[0], choices[-1]):
    flags = [word for one in choice["sets"] for word in ("--set", one)]
    told = json.loads(subprocess.run([sys.argv[1], "simulate", sys.argv[2], "--json", *flags], check=True,
                                     capture_output=True, text=True).stdout)
    assert abs(told["step_s"] / choice["step_s"] - 1) < 1e-9, (told, choice)
CHECK
}
# Threads that were left to a host of eight processors: four of each rank.
run_tiny runs/b 6 > run.txt 2>&1 || { cat run.txt; fail "a run"; }
python3 -c 'import json
table = json.load(open("runs/b/costs.json"))
assert "processors" in json.dumps(table["facts"]), table["facts"]
table["facts"]["processors"] = "8"
json.dump(table, open("runs/b/costs.json", "w"))'
"$orrery" plan runs/b --ranks 2 --json > all.json || fail "no plan of a run elsewhere"
grep -q '"8 processors' all.json && told_alike runs/b || { cat all.json; fail "a run's processors do not count"; }
# Without --ranks one rank is on each of them.
"$orrery" plan runs/b --set train.sequences_per_step=8 --most-tp 1 --most-pp 1 > ranks.txt ||
    { cat ranks.txt; fail "no plan without --ranks"; }
grep -q "^gpt on this machine: 8 ranks" ranks.txt || { cat ranks.txt; fail "a run's processors are not its ranks"; }

plan --json > all.json || fail "no plan"
told_alike runs/a || fail "simulate says other things than plan"
plan --json --jobs 1 > one.json && cmp -s all.json one.json || fail "--jobs changes the plan"
plan > plan.txt || fail "no plan as text"
for word in "gpt on this machine: 2 ranks, 4 sequences a step" "costs from runs/a/costs.json" "mean over ranks" \
    "does not run: \|do not run: " "^\[mesh\]" "^microbatches = "; do
    grep -q "$word" plan.txt || { cat plan.txt; fail "no \"$word\" in the plan"; }
done
# Each choice is a whole one of two ranks; the first is as fast as any.
python3 - << 'CHECK' || fail "the plan's choices are not what they say"
import json
plan = json.load(open("all.json"))
choices = plan["choices"]
assert len(choices) > 3 and plan["compiled"] >= len(choices) + sum(one["count"] for one in plan["refused"]), plan
assert {(c["pp"], c["dp"], c["tp"]) for c in choices} >= {(1, 2, 1), (2, 1, 1)}, choices
times = [c["step_s"] for c in choices]
assert times[1:] == sorted(times[1:]) and 0 < times[0] <= 1.01 * times[1], times
for choice in choices:
    assert choice["pp"] * choice["dp"] * choice["cp"] * choice["tp"] == 2 and choice["fits"], choice
    assert choice["mapping"] == "", choice
    assert 4 % (choice["dp"] * choice["samples"]) == 0, choice
CHECK
plan --json --keep mesh,zero,samples,recompute > kept.json || fail "--keep"
python3 -c 'import json
for c in json.load(open("kept.json"))["choices"]: assert (c["dp"], c["zero"], c["recompute"]) == (2, 0, "none"), c' ||
    fail "--keep does not hold what is configured"
grep -q "^times of the first: " plan.txt || { cat plan.txt; fail "nobody says where times are from"; }
# Costs of another machine and a kept table that cannot be read are told, in both forms.
python3 -c 'import json
table = json.load(open("runs/a/costs.json"))
table["machine"]["processor"] = "of somebody else"
json.dump(table, open("other.json", "w"))'
mkdir -p other/orrery/costs
XDG_CACHE_HOME=$work/other "$orrery" calibrate --refit runs/a --keep > keep.txt ||
    { cat keep.txt; fail "a kept table"; }
for kept in other/orrery/costs/*.json; do echo "{" > "$kept"; done
XDG_CACHE_HOME=$work/other plan --table other.json --json > noted.json || fail "a plan with notes"
XDG_CACHE_HOME=$work/other plan --table other.json > noted.txt || fail "a plan with notes"
python3 - << 'CHECK' || fail "notes"
import json
plan, text = json.load(open("noted.json")), open("noted.txt").read().split("\n")
assert any("other.json: costs are of another machine" in note for note in plan["notes"]), plan["notes"]
assert any("the saved costs of this machine are not used" in note for note in plan["notes"]), plan["notes"]
assert all(line in text for note in plan["notes"] for line in note.split("\n")), (plan["notes"], text)
assert all(choice["sources"] for choice in plan["choices"]), plan["choices"]
assert json.load(open("all.json"))["notes"] == []
CHECK
plan -o plan.svg > told.txt && grep -q '<svg xmlns=' plan.svg || fail "no drawing"
! grep -q "accelerator" plan.svg && grep -Eq '>time of a step, in (s|ms|us)<' plan.svg ||
    fail "a drawing of another machine"

# A kept table, which is of the threads that a rank of --ranks has, is found, whatever the script's mesh.
tiny=("$source_root/scripts/gpt.lua" --set data.path=text.txt --set data.tokens_per_sequence=32 --set mesh.dp=2
    --set train.sequences_per_step=4 --set train.steps=4 --set script.layers=2 --set script.embed=48
    --set script.heads=3)
threads=$(($(nproc) < 4 ? 1 : $(nproc) / 2))
XDG_CACHE_HOME=$work/kept "$orrery" calibrate "${tiny[@]}" --threads $threads --seconds 2 --bytes 4096,65536 --keep \
    > keep.txt 2>&1 || { cat keep.txt; fail "a table that is kept"; }
for mesh in 1 2; do
    XDG_CACHE_HOME=$work/kept "$orrery" plan "${tiny[@]}" --ranks 2 --set mesh.dp=$mesh > found.txt 2>&1 &&
        grep -q "costs from the saved costs of this machine ($work/kept/" found.txt ||
        { cat found.txt; fail "plan does not find what is kept for two ranks"; }
done

# refused CODE WORDS ARGUMENTS...
refused() {
    local code=$1 words=$2 word
    shift 2
    out=$("$orrery" plan "$@" 2>&1)
    [ $? -eq "$code" ] || fail "$*: another exit code than $code: $out"
    word=$(missing_word "$words" "$out")
    [ -z "$word" ] || fail "$*: no \"$word\" in: $out"
}
refused 2 'no cluster and no table|--table FILE' "$source_root/scripts/gpt.lua" --set data.path=text.txt \
    --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=4
refused 2 'nothing runs|transport gloo of axis|was not measured' runs/a --ranks 2 --set run.transport=gloo
grep -q "take " <<< "$out" && fail "more memory or fewer ranks measure no transport: $out"
refused 2 'nothing runs|3 sequences per step are not divisible by dp = 2 (for dp = 2: set train.sequences_per_step to 2 or' \
    runs/a --ranks 2 --set train.sequences_per_step=3 --most-tp 1 --most-pp 1 --most-cp 1
refused 2 'the mesh of --keep mesh has 2' runs/a --ranks 4 --keep mesh
refused 2 'nothing fits|on a rank in the best case| more than the |fewer ranks (--ranks), or a machine' runs/a \
    --ranks 2 --set script.embed=24576 --set script.layers=96 --set script.heads=96 --keep recompute,schedule,samples
# AdamW in f32 has 16 bytes a parameter, of which ZeRO-3 has half on each of two ranks.
"$orrery" plan runs/a --ranks 2 --set script.embed=24576 --set script.layers=96 --set script.heads=96 --most-tp 1 \
    --most-pp 1 2>&1 | python3 -c 'import re, sys
said = sys.stdin.read()
parameters, bytes_, unit = re.search(r"of ([\d,]+) parameters alone needs about ([\d.]+) (GiB|TiB)", said).groups()
bytes_ = float(bytes_) * 2 ** (30 if unit == "GiB" else 40)
assert abs(bytes_ / (8 * int(parameters.replace(",", ""))) - 1) < 0.02, said' || fail "the least state is not AdamW's"
refused 2 '--link-us needs the rate of the link' runs/a --link-us 5
refused 2 '--software requires --cluster' runs/a --software eager
refused 2 'there is no folder no/such' runs/a -o no/such/plan.svg
mkdir folder.svg
refused 2 'is a folder' runs/a -o folder.svg
echo "1 passed, 0 failed"
