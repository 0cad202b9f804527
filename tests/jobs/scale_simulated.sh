#!/usr/bin/env bash
# `orrery scale --simulate`: sizes on a cluster and on this machine, beside what was measured, and what is refused.
source "$(dirname "$0")/lib.sh"
export XDG_CACHE_HOME=$work/cache
clusters=$source_root/configs/clusters
tiny=("$source_root/scripts/gpt.lua" --set run.seed=5 --set data.path=text.txt --set data.tokens_per_sequence=32
    --set train.sequences_per_step=4 --set train.steps=8 --set script.layers=2 --set script.embed=48
    --set script.heads=3)
# scale CODE NAME ARGUMENTS...
scale() { TMPDIR=$work exits "$1" "$2" timeout 200 "$orrery" scale "${tiny[@]}" "${@:3}"; }

h100=(--ranks 8,16,64 --simulate --cluster "$clusters/h100.toml" --set train.sequences_per_step=8)
scale 0 cluster "${h100[@]}" --target 0.000001 -o cluster.svg
[ "$(sizes cluster)" = "8 8;16 16;64 64;" ] || { cat cluster.txt; fail "sizes of a cluster: $(sizes cluster)"; }
grep -q "weak scaling over dp, simulated, the batch grows" cluster.txt || { cat cluster.txt; fail "no title"; }
grep -q "simulated; the batch grows" cluster.svg || fail "the picture does not say that it is simulated"
scale 0 again "${h100[@]}" --target 0.000001
cmp -s cluster.txt again.txt || fail "two simulations differ"
scale 1 missed "${h100[@]}" --target 1
grep -q "64 ranks reach .* % of ideal scaling: the target is missed" missed.txt ||
    { cat missed.txt; fail "no verdict"; }

"$orrery" run "${tiny[@]}" --set run.folder=runs/a --set mesh.dp=2 > run.txt 2>&1 || { cat run.txt; fail "a run"; }
scale 0 here --ranks 1,2,4 --simulate --table runs/a/costs.json --target 0.000001
[ "$(sizes here)" = "1 4;2 8;4 16;" ] || { cat here.txt; fail "sizes of this machine: $(sizes here)"; }
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
refused '--measure and --cluster cannot be combined' --ranks 1,2 --simulate --measure --cluster "$clusters/h100.toml"
# A size that does not fit, on the cluster or in memory, is named, and the others are simulated.
scale 1 large --ranks 8,256 --simulate --cluster "$clusters/h100.toml" --set train.sequences_per_step=8 \
    --target 0.000001
[ "$(sizes large)" = "8 8;" ] && grep -q "^not simulated: 256 ranks: .*128 missing" large.txt ||
    { cat large.txt; fail "a size that the cluster lacks is not named"; }
wide=(--simulate --cluster "$clusters/h100.toml" --set train.sequences_per_step=8 --set script.embed=24576
    --set script.heads=96 --target 0.000001)
scale 0 fits --ranks 1,8,16 "${wide[@]}" --set script.zero=3
[ "$(sizes fits)" = "8 64;16 128;" ] && grep -q "^not simulated: 1 rank: .*out of memory" fits.txt ||
    { cat fits.txt; fail "a size out of memory is not named, or ends the others"; }
refused 'none of the sizes can be simulated|1 rank: |2 ranks: ' --ranks 1,2 "${wide[@]}" --set script.zero=3
refused 'out of memory: rank 0 needs' --ranks 1,2 "${wide[@]}"
# What speed-ups are over is said where the smallest size is left out, and the picture names it, too.
scale 0 over --ranks 1,8 "${wide[@]}" --set script.zero=3 -o over.svg
for file in over.txt over.svg; do
    grep -q "speed-up and efficiency over 8 ranks" $file && grep -q "not simulated: 1 rank: .*out of memory" $file ||
        { cat over.txt; fail "$file does not say what was left out"; }
done
# A mistake is thrown as it is, and a size that cannot run ends no measurement.
refused 'script.layerz' --ranks 8,16 --simulate --cluster "$clusters/h100.toml" --set script.layerz=3
grep -q "none of the sizes" refused.err && { cat refused.err; fail "a mistake is taken for sizes that do not fit"; }
scale 1 apart --ranks 1,2,3 --strong --simulate --measure --steps 8 --table runs/a/costs.json --target 0.000001
[ "$(sizes apart)" = "1 4;2 4;" ] && grep -q "^not simulated: 3 ranks, not run either: " apart.txt ||
    { cat apart.txt apart.err; fail "a size that cannot run is run, or not named"; }
for nodes in 0 -1 1000001 4611686018427387904 99999999999999999999; do
    refused "$nodes: expected a whole number from 1 to 1000000" --ranks 8 --simulate --cluster "$clusters/h100.toml" \
        --cluster-nodes $nodes
done
scale 0 most --ranks 8 --simulate --cluster "$clusters/h100.toml" --set train.sequences_per_step=8 \
    --cluster-nodes 1000000
refused 'expected the name of a file' --ranks 1,2 --simulate --cluster ''
refused 'expected ascending' --ranks 8,4 --simulate --cluster "$clusters/h100.toml"
echo "1 passed, 0 failed"
