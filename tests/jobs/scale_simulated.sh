#!/usr/bin/env bash
# `orrery scale --simulate`: sizes on a cluster and on this machine, beside what was measured, and what is refused.
source "$(dirname "$0")/lib.sh"
export XDG_CACHE_HOME=$work/cache
clusters=$source_root/configs/clusters
tiny=("$source_root/scripts/gpt.lua" --set run.seed=5 --set data.path=text.txt --set data.tokens_per_sequence=32
    --set train.sequences_per_step=4 --set train.steps=8 --set script.layers=2 --set script.embed=48
    --set script.heads=3)
# scale CODE NAME ARGUMENTS...
scale() {
    local code=$1 name=$2 found
    shift 2
    TMPDIR=$work timeout 200 "$orrery" scale "${tiny[@]}" "$@" > "$name.txt" 2> "$name.err"
    found=$?
    [ $found -eq "$code" ] || { cat "$name.txt" "$name.err"; fail "scale $*: exit code $found, expected $code"; }
}
rows() { awk '$1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ { print $1, $2 }' "$1.txt" | tr '\n' ';'; }

h100=(--ranks 8,16,64 --simulate --cluster "$clusters/h100.toml" --set train.sequences_per_step=8 --target 0.000001)
scale 0 cluster "${h100[@]}" -o cluster.svg
[ "$(rows cluster)" = "8 8;16 16;64 64;" ] || { cat cluster.txt; fail "sizes of a cluster: $(rows cluster)"; }
grep -q "weak scaling over dp, simulated, the batch grows" cluster.txt || { cat cluster.txt; fail "no title"; }
grep -q "simulated; the batch grows" cluster.svg || fail "the picture does not say that it is simulated"
scale 0 again "${h100[@]}"
cmp -s cluster.txt again.txt || fail "two simulations differ"

"$orrery" run "${tiny[@]}" --set run.folder=runs/a --set mesh.dp=2 > run.txt 2>&1 || { cat run.txt; fail "a run"; }
scale 0 here --ranks 1,2,4 --simulate --table runs/a/costs.json --target 0.000001
[ "$(rows here)" = "1 4;2 8;4 16;" ] || { cat here.txt; fail "sizes of this machine: $(rows here)"; }
[ -z "$(find "$work" -name 'orrery-scale-*')" ] || fail "a simulation runs something"
scale 0 both --ranks 1,2 --simulate --measure --steps 8 --table runs/a/costs.json --target 0.000001 -o both.svg
grep -q "predicted" both.txt && grep -q 'class="predicted"' both.svg || { cat both.txt; fail "no prediction beside"; }

# refused WORDS ARGUMENTS...
refused() {
    local words=$1 word
    shift
    scale 2 refused "$@"
    word=$(missing_word "$words" "$(cat refused.err)")
    [ -z "$word" ] || { cat refused.err; fail "scale $*: no \"$word\""; }
}
refused 'no cluster and no table of measured costs' --ranks 1,2 --simulate
refused '--cluster' --ranks 1,2 --cluster "$clusters/h100.toml"
refused '--measure: runs are of this machine' --ranks 1,2 --simulate --measure --cluster "$clusters/h100.toml"
refused '128 missing' --ranks 8,256 --simulate --cluster "$clusters/h100.toml" --set train.sequences_per_step=8
refused 'expected ascending' --ranks 8,4 --simulate --cluster "$clusters/h100.toml"
echo "1 passed, 0 failed"
