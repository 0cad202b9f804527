#!/usr/bin/env bash
# The losses and the bias that balance experts, on one rank and on meshes: the same losses, loads and dropped choices.
source "$(dirname "$0")/lib.sh"
cat > balance.lua << 'LUA'
local o = require "orrery"
local opt = o.options {
  loss = { "none", "" }, parts = { 1, "" }, groups = { 0, "" }, z = { 0.0, "" }, rate = { 0.0, "" },
}
local data = o.data.text {}
local model = require "orrery.models.mixtral" {
  layers = 2, embed = 32, heads = 4, kv_heads = 2, mlp = 24, vocab = data.vocab, experts = 4, top_k = 2, capacity = 1.0,
  parts = opt.parts,
  balance = { loss = opt.loss, coefficient = 0.05, groups = opt.groups, z = opt.z, rate = opt.rate },
}
local program = o.trace("experts", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
program:train_with(o.optim.adamw { lr = 3e-3 })
program:parallel {
  o.strategy.pipeline { axis = "pp" }, o.strategy.context { axis = "cp" }, o.strategy.tensor { axis = "tp" },
  o.strategy.data { axis = { "dp", "cp" } },
}
program:compile():train(data)
LUA
settings=(--set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=8
    --set train.steps=10 --set train.log_every=1 --set checkpoint.final=false --set run.timeout_s=20)
# told NAME [settings]: loss, norm, balance_loss, z_loss, loads and dropped shares of each step
told() {
    trained_in "$1" balance.lua "${settings[@]}" "${@:2}"
    python3 - "$1/metrics.jsonl" > "$1.txt" << 'PY' || fail "no metrics of $1"
import json, sys
for line in open(sys.argv[1]):
    m = json.loads(line)
    if "loss" not in m: continue  # an evaluation
    told = [m[k] for k in ("loss", "grad_norm", "balance_loss", "z_loss") if k in m]
    print(*told, *m["expert_load"], *m["expert_drop"])
PY
}
same() {  # as the run on one rank, to 1e-5
    paste "$1.txt" "$2.txt" | awk '{ for (i = 1; i <= NF / 2; ++i) { d = $i - $(i + NF / 2); if (d < 0) d = -d
        if (d > 1e-5 * ($i > 1 ? $i : 1)) exit 1 } } END { exit NR != 10 }' ||
        { paste "$1.txt" "$2.txt"; fail "$2 differs from $1"; }
}
balanced() {  # SETTINGS [MESH]...: each mesh as one rank
    local arguments=() setting mesh
    for setting in $1; do arguments+=(--set "script.$setting"); done
    told one "${arguments[@]}"
    shift
    for mesh in "$@"; do
        # shellcheck disable=SC2046,SC2086
        told meshed "${arguments[@]}" $(printf -- '--set %s ' $mesh)
        same one meshed
        rm -r meshed
    done
}
dp="mesh.dp=2 train.microbatches=2" pp="mesh.pp=2 train.microbatches=4"
balanced "loss=groups groups=4" "$dp"
balanced "loss=sequence z=0.001" "$dp" "$pp" "mesh.tp=2"
balanced "loss=sequence z=0.001 parts=2" "mesh.dp=2 mesh.cp=2"
balanced "loss=last_step rate=0.01" "$dp" "$pp"
exits 0 verify $orrery verify balance.lua "${settings[@]}" --steps 2 --set script.loss=last_step \
    --set script.rate=0.01 --set script.z=0.001 --set mesh.pp=2 --set mesh.dp=2 --set train.microbatches=2
grep -qE "memory expert_load expert_drop$" one.log || { cat one.log; fail "the step line has no loads"; }
# A group that micro-batches tear apart is refused.
refused "groups = 2: 4 micro-batches would tear a group apart|set groups to a multiple of train.microbatches" \
    $orrery check balance.lua "${settings[@]}" --set script.loss=groups --set script.groups=2 --set train.microbatches=4
echo "1 passed, 0 failed"
