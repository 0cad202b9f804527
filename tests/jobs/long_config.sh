#!/usr/bin/env bash
# The commands of configs/README.md for long.toml, with a small model and short rows: each method of context
# parallelism, with an order, trains as one rank does, check says what a layer sends and keeps, plan searches cp where
# a row needs it.
source "$(dirname "$0")/lib.sh"
awk '/^## / { inside = /^## Long rows/ } inside && /^build\/orrery/' \
    "$source_root/configs/README.md" |
    sed "s|^build/orrery|\"\$orrery\"|; s|scripts/gpt|$source_root/&|; s|configs/|$source_root/&|g" > commands.txt
small="--set data.path=text.txt --set data.tokens_per_sequence=256 --set script.embed=32 --set script.heads=4 \
    --set script.mlp=48 --set script.loss_tile=32 --set data.validation=0.1"
command_of() { grep " $1 " commands.txt; }
[ "$(wc -l < commands.txt)" -eq 3 ] || fail "configs/README.md has other commands of long rows than run, check, plan"
trained_as() { # trained_as FOLDER FLAGS...
    local folder=$1
    shift
    eval "$(command_of run) $small --set train.steps=6 --set train.evaluate_every=0 --set run.folder=$folder $*" \
        > "$folder.txt" 2>&1 || { cat "$folder.txt"; fail "$(command_of run) $*"; }
}
trained_as one --set mesh.cp=1
for how in heads,natural gather,zigzag ring,balanced; do
    method=${how%,*}
    trained_as $method --set script.context=$method --set script.order="${how#*,}"
    paste <(losses one) <(losses $method) | awk '
        function far(a, b) { return (a - b) * (a - b) > 1e-10 * b * b }
        { if ($1 != $4 || far($2, $5) || far($3, $6)) exit 1 } END { exit NR != 6 }' ||
        { paste <(losses one) <(losses $method); fail "long rows by $how train otherwise than on one rank"; }
done
# Keys and values of 4 ranks, 64 of 256 tokens each, 2 heads of 8 elements, f32: U = 8 KiB, (P-1)(2 U + U') = 72 KiB.
eval "$(command_of check) $small" > check.txt 2>&1 || { cat check.txt; fail "$(command_of check)"; }
grep -qF "72.0 KiB  over cp by context" check.txt && grep -q "none is implicit" check.txt ||
    { cat check.txt; fail "check does not say what context sends"; }
eval "$(command_of plan) $small --ranks 2 --most-pp 1 --most-tp 1" > plan.txt 2>&1 ||
    { cat plan.txt; fail "$(command_of plan)"; }
grep -q "^cp = 2" plan.txt && grep -q "^context = \"" plan.txt ||
    { cat plan.txt; fail "plan does not share the only row of a batch"; }
echo "1 passed, 0 failed"
