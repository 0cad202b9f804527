#!/usr/bin/env bash
# Plans of long rows over many ranks, within bounds of memory, with no gather that no strategy asked for: Llama 3 8B
# with one row of 1,048,576 tokens on 64 ranks, by heads inside a ring; Llama 3.1 405B with rows of 131,072 tokens on
# 16,384 ranks by gathering. ORRERY_LONG: the latter by a ring, too, and a table.
source "$(dirname "$0")/lib.sh"
root=$source_root
# checked MB SECONDS NAME FILE ARGUMENTS...: `orrery check` into FILE, within this memory. Its processor seconds are
# printed, and bounded in the long form, which has the machine to itself.
checked() {
    local limit=$1 most=$2 name=$3 file=$4
    shift 4
    PYTHONPATH=$root/tests/jobs python3 -B - "$limit" "$most" "$name" "$file" "$orrery" check "$@" <<'PYTHON'
import os, sys
from measured import measured
limit, most, name, file, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:]
status, seconds, peak = measured(command, file)
said = f"{name}: {peak / 1000:.0f} MB of {limit}, {seconds:.2f} s of {most}, exit code {status >> 8}"
print(said)
table = os.environ.get("ORRERY_LONG")
if table:
    open(table, "a").write(said + "\n")
if status != 0 or peak > limit * 1000 or (table and seconds > most):
    open(file, "a").write(f"{said}; expected 0 within these bounds\n")
    sys.exit(1)
PYTHON
    [ $? -eq 0 ] || fail "$name: $(tail -1 "$file")"
    says "$file" "the plan is complete and free of deadlock"
    says "$file" "none is implicit: strategies asked for every gather"
}
says() { grep -qF -- "$2" "$1" || { tail -20 "$1"; fail "no \"$2\" in $1"; }; }
command -v python3 > /dev/null || { echo "not measured: python3 is not here"; exit 77; }
[ -z "${ORRERY_LONG:-}" ] || : > "$ORRERY_LONG"

cat > rows.lua <<'LUA'
local o = require "orrery"
local llama = require "orrery.models.llama"
local data = o.data.file {}
local model = llama { layers = 32, embed = 4096, heads = 32, kv_heads = 8, mlp = 14336, vocab = data.vocab }
local program = o.trace("llama", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
program:train_with(o.optim.adamw { lr = 1e-4 })
program:parallel {
  o.strategy.recompute {},
  o.strategy.context { axis = "co", method = "ring" },
  o.strategy.context { axis = "cp" },
  o.strategy.data { axis = { "co", "cp" }, zero = 1 },
}
local run = program:compile()
print(run:summary())
run:train(data)
LUA
cat > rows.toml <<'TOML'
[run]
device = "cpu"
transport = "gloo"
[mesh]
co = 8
cp = 8
[train]
steps = 10
sequences_per_step = 1
precision = "bf16"
[data]
tokens_per_sequence = 1048576
vocab = 128256
TOML
checked 2000 10 "Llama 3 8B, a row of 1,048,576 tokens on 64 ranks, heads 8 x ring 8" 8.txt rows.lua --config rows.toml
says 8.txt "roll over co"
says 8.txt "all_to_all over cp"

large=("$root/scripts/gpt.lua" --config "$root/configs/llama405b.toml" --set mesh.dp=8 --set mesh.cp=16
    --set train.sequences_per_step=128 --set data.tokens_per_sequence=131072)
checked 2000 10 "Llama 3.1 405B, rows of 131,072 tokens on 16,384 ranks, by gathering" gather.txt "${large[@]}" \
    --set script.context=gather
says gather.txt "405,853,388,800 parameters"
[ -z "${ORRERY_LONG:-}" ] ||
    checked 4000 30 "the same by a ring" ring.txt "${large[@]}" --set script.context=ring
echo "1 passed, 0 failed"
