#!/usr/bin/env bash
# Which checkpoints are marked as suspect: none of a run whose batches differ, and the same ones whether it was stopped
# or not; what retention keeps where saves are automatic.
source "$(dirname "$0")/lib.sh"
good() {
    local name=$1
    shift
    "$@" > "$name.log" 2>&1 || fail "$name: exit code $?: $(cat "$name.log")"
}
# 64 samples, of params that never change, which steps take by chance: losses of 0.001 and 5, and from 1 to 1e12.
mkdir mix wide
python3 - << 'EOF'
import struct
header = "{'descr': '<f4', 'fortran_order': False, 'shape': (64, 1), }"
header += " " * (63 - (10 + len(header)) % 64) + "\n"
for name, losses in ("mix", [0.001, 5.0] * 32), ("wide", [10 ** (i / 5) for i in range(64)]):
    open(name + "/x.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                                      struct.pack("<64f", *(loss ** 0.5 for loss in losses)))
EOF
cat > mix.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { set = { "mix", "folder of the samples" } }
local data = o.data.arrays { path = opt.set }
local program = o.trace("mix", data.signature, function(batch)
  local still = nn.linear(batch.x, "still", { "outputs", 1 }) * 0
  return (batch.x:square() + still):sum(), o.constant(batch.x.shape[1])
end)
program:train_with(o.optim.sgd { lr = 0.1 })
program:compile():train(data)
LUA
mix() {  # FOLDER STEPS [arguments]
    local folder=$1 steps=$2
    shift 2
    good "$folder" "$orrery" run mix.lua --set run.folder="$folder" --set train.steps="$steps" \
        --set train.sequences_per_step=1 --set checkpoint.every_steps=1 --set checkpoint.async=false \
        --set data.validation=0 "$@"
}
steps_in() { "$orrery" checkpoints list "$1" --json | python3 -c '
import json, sys
print(*(s["step"] for s in json.load(sys.stdin)["steps"]))'; }

mix whole 60
! grep -q "marked as suspect" whole.log || { grep marked whole.log; fail "steps of a healthy run are marked"; }
[ "$(steps_in whole)" = "60 59" ] || fail "kept: $(steps_in whole)"
# With losses and a factor that mark some: the same ones where the run was stopped between them.
wide() { mix "$@" --set script.set=wide --set checkpoint.suspect_factor=2; }
wide strict 60
marks() { cat "$@" | grep -o "the checkpoint of step .* is marked as suspect: .*"; }
marks strict.log > strict.txt
[ "$(wc -l < strict.txt)" -ge 1 ] || { cat strict.log; fail "a factor of 2 marks nothing"; }
for steps in 10 11 24 25 40 60; do
    wide parts $steps
    cat parts.log >> all_parts.log
done
marks all_parts.log > parts.txt
cmp strict.txt parts.txt || { diff strict.txt parts.txt; fail "a run that was stopped marks others"; }
mix off 30 --set checkpoint.suspect_factor=0
! grep -q "marked as suspect" off.log || fail "a factor of 0 marks"
refused "checkpoint.suspect_factor = 0.5: a normal loss may be that much" "$orrery" run mix.lua \
    --set run.folder=off --set checkpoint.suspect_factor=0.5

# Automatic saves save what is kept for good, too, and what is evaluated is not left out.
good auto run_tiny auto 30 --set checkpoint.every_steps=0 --set checkpoint.every=auto --set checkpoint.mtbf_days=1000 \
    --set checkpoint.keep_every_steps=7 --set script.layers=1 --set train.evaluate_every=0
[ "$(steps_in auto)" = "30 28 21 14 7" ] || fail "auto keeps $(steps_in auto)"
echo "1 passed, 0 failed"
