#!/usr/bin/env bash
# A row of packed documents has the losses and gradients of its documents run one by one: GPT with learned positions,
# Llama with rope, a window and grouped heads, fused and not, over steps in which each shows in the next.
source "$(dirname "$0")/lib.sh"
python3 - << 'PY'
import random, struct
def npy(name, rows):                    # i32 [rows, columns], as NumPy writes it
    head = "{'descr': '<i4', 'fortran_order': False, 'shape': (%d, %d), }" % (len(rows), len(rows[0]))
    head = head.ljust(117) + "\n"
    with open(name, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        for row in rows: f.write(struct.pack("<%di" % len(row), *row))
import os
random.seed(4)
lengths, T = [1, 17, 2, 30, 9, 1, 36], 96
assert sum(lengths) == T
os.makedirs("packed"); os.makedirs("alone")
row = {name: [] for name in ("tokens", "targets", "positions", "documents")}
rows = {"tokens": [], "targets": []}
for number, n in enumerate(lengths):
    ids = [random.randrange(40) for _ in range(n)]
    next_ids = ids[1:] + [-1]
    row["tokens"] += ids; row["targets"] += next_ids
    row["positions"] += range(n); row["documents"] += [number] * n
    rows["tokens"].append(ids + [0] * (T - n)); rows["targets"].append(next_ids + [-1] * (T - n))
for name in row: npy("packed/%s.npy" % name, [row[name]])
for name in rows: npy("alone/%s.npy" % name, rows[name])
PY
cat > a.lua << 'LUA'
local o = require "orrery"
local opt = o.options { model = { "gpt", "gpt or llama" }, fused = { true, "" }, data = { "", "packed or alone" } }
local data = o.data.arrays { path = opt.data, batch = opt.data == "packed" and 1 or 7, validation = 0 }
local sizes = { layers = 2, embed = 32, heads = 4, mlp = 48, vocab = 40, fused = opt.fused }
if opt.model == "gpt" then sizes.seq = 96 else sizes.kv_heads, sizes.window = 2, 12 end
local model = require("orrery.models." .. opt.model)(sizes)
local program = o.trace("a", data.signature, function(batch)
  local row = {}
  for _, array in ipairs(data.signature) do row[array.name] = batch[array.name]:reshape { "batch", { "seq", 96 } } end
  return model:loss(row.tokens, row.targets, opt.data == "packed" and row or nil)
end)
program:train_with(o.optim.sgd { lr = 0.5 })
program:compile():train(data)
LUA
trained() { # trained FOLDER MODEL FUSED DATA
    trained_in "$1" a.lua --set run.seed=5 --set run.timeout_s=20 --set train.steps=12 --set script.model="$2" \
        --set script.fused="$3" --set script.data="$4"
}
for model in gpt llama; do
    for fused in true false; do
        trained packed_$model$fused $model $fused packed
        trained alone_$model$fused $model $fused alone
        paste <(losses packed_$model$fused) <(losses alone_$model$fused) | awk '
            function far(a, b) { return (a - b) * (a - b) > 1e-10 * b * b }
            { if ($1 != $4 || far($2, $5) || far($3, $6)) exit 1 } END { exit NR != 12 }' ||
            { paste <(losses packed_$model$fused) <(losses alone_$model$fused); fail "$model, fused = $fused"; }
    done
done
