#!/usr/bin/env bash
# A job goes on on another mesh: the losses of the run that was not interrupted, each sample seen once, text from any.
source "$(dirname "$0")/lib.sh"
cat > job.lua << 'LUA'
local o = require "orrery"
local mesh = o.config.mesh
local opt = o.options { zero = { 0, "stage over dp and cp" } }
local data = o.data.file {}
local llama = require "orrery.models.llama"
local model = llama { layers = 2, embed = 48, heads = 4, kv_heads = 2, mlp = 64, vocab = data.vocab }
local program = o.trace("llama", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
program:train_with(o.optim.adamw { lr = 1e-3, clip = 1.0 })
local list = {}
if mesh.pp then
  list[#list + 1] = o.strategy.pipeline { axis = "pp", schedule = "1f1b", microbatches = o.config.train.microbatches }
end
list[#list + 1] = o.strategy.context { axis = "cp" }
if mesh.tp then list[#list + 1] = o.strategy.tensor { axis = "tp" } end
if opt.zero > 0 then
  list[#list + 1] = o.strategy.zero { axis = { "dp", "cp" }, stage = opt.zero }
else
  list[#list + 1] = o.strategy.data { axis = { "dp", "cp" } }
end
program:weights(model:tensors())
program:parallel(list)
program:compile():train(data)
LUA

# train FOLDER STEPS SETTING...: the job on the mesh that the settings name.
train() {
    local folder=$1 steps=$2 sets=() setting
    shift 2
    for setting in "$@"; do sets+=(--set "$setting"); done
    $orrery run job.lua --set run.folder="$folder" --set data.path=text.txt --set data.tokens_per_sequence=32 \
        --set data.validation=0.1 --set train.sequences_per_step=4 --set train.steps="$steps" \
        --set train.evaluate_batches=1 --set checkpoint.every_steps=5 --set run.timeout_s=20 "${sets[@]}" \
        > "$folder.$steps.log" 2>&1 || { cat "$folder.$steps.log"; fail "$folder to step $steps on $*"; }
}

train whole 12
losses whole > whole.txt
moved=0
# move NAME "settings before" "settings behind"
move() {
    local name=$1
    read -ra before <<< "$2"
    read -ra behind <<< "$3"
    train "$name" 5 "${before[@]}"
    train "$name" 12 "${behind[@]}"
    grep -q "resumed from step 5" "$name.12.log" || { cat "$name.12.log"; fail "$name: it did not resume"; }
    losses "$name" > "$name.txt"
    [ "$(wc -l < "$name.txt")" -eq 12 ] || { cat "$name.txt"; fail "$name: not twelve steps"; }
    # Another sample would be another loss, by far more than 1e-5 of it.
    paste whole.txt "$name.txt" | awk -v name="$name" '
        { d = $2 > $5 ? $2 - $5 : $5 - $2; if (d / $2 > most) most = d / $2 }
        $1 != $4 || d > 1e-5 * $2 { bad = bad " " $1 }
        END { printf "%s: losses within %.1e\n", name, most; if (bad) { print "steps that differ:" bad; exit 1 } }' ||
        fail "$name: another trajectory"
    $orrery sample "$name" -p "3 plus" -n 20 -t 0 > "$name.sample" 2>&1 ||
        { cat "$name.sample"; fail "$name: no sample"; }
    moved=$((moved + 1))
}

move "dp2_one" "mesh.dp=2" "mesh.dp=1"
move "one_dp4" "mesh.dp=1" "mesh.dp=4"
move "dp2_tp2" "mesh.dp=2" "mesh.tp=2"
move "tp2_zero3" "mesh.tp=2" "mesh.dp=4 script.zero=3"
move "zero3_tp2" "mesh.dp=2 script.zero=3" "mesh.tp=2"
move "both_zero1" "mesh.dp=2 mesh.tp=2" "mesh.dp=2 script.zero=1"
move "pp_tp_zero3" "mesh.pp=2 mesh.tp=2 train.microbatches=2" "mesh.dp=4 script.zero=3"
move "zero1_pp" "mesh.dp=2 script.zero=1" "mesh.pp=2 mesh.dp=2 script.zero=2 train.microbatches=2"
move "one_cp4" "mesh.dp=1" "mesh.cp=4"
move "cp_zero3" "mesh.cp=2" "mesh.dp=2 mesh.cp=2 script.zero=3"
$orrery evaluate cp_zero3 text.txt > cp.evaluate 2>&1 || { cat cp.evaluate; fail "no perplexity on dp x cp"; }
$orrery export cp_zero3 exported > cp.export 2>&1 || { cat cp.export; fail "no export on dp x cp"; }
echo "$moved passed, 0 failed"
