#!/usr/bin/env bash
# Streaming DiLoCo: islands of several meshes end as a float64 reference, and a run that ends while fragments are on
# their way resumes with the same bits.
source "$(dirname "$0")/lib.sh"
long=${ORRERY_LONG:-}  # ends runs after every step, between processes; its table says so
cat > tables.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { fragments = { 4, "" }, zero = { 0, "" }, codec = { "none", "" },
  feedback = { false, "" } }
local data = o.data.text {}
local program = o.trace("tables", data.signature, function(batch)
  local logits
  for i = 0, 3 do
    nn.scope("layers." .. i, function()
      local table = o.param { name = "table", shape = { { "vocab", data.vocab }, { "next", data.vocab } } }
      local row = batch.tokens:embedding(table)
      logits = logits and logits + row or row
    end)
  end
  return (logits * 1):cross_entropy(batch.targets)             -- its gradient is sent to the stage before
end)
o.methods.streaming(program, { every = 10, fragments = opt.fragments, tau = 2, alpha = 0.5,
  optimizer = o.optim.adamw { lr = 0.05, decay = 0, clip = false } })
program:parallel { o.strategy.islands { axis = "site", codec = opt.codec, feedback = opt.feedback },
  o.strategy.pipeline { axis = "pp" },
  o.strategy.tensor { axis = "tp" }, o.strategy.data { axis = "dp", zero = opt.zero } }
local run = program:compile()
print(run:summary())
run:train(data)
LUA
settings=(--set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=8
    --set run.timeout_s=20 --set train.evaluate_every=0)

# Four islands end as the reference.
for case in "" "mesh.dp=2 script.zero=3" "mesh.tp=2" "mesh.pp=2 train.microbatches=2"; do
    arguments=(--set mesh.site=4 --set train.steps=30 --set checkpoint.every_steps=0 --set run.transport=threads)
    for setting in $case; do arguments+=(--set "$setting"); done
    trained_in table tables.lua "${settings[@]}" "${arguments[@]}"
    [ -s expected.txt ] || for step in $(seq 30); do
        $orrery data table --step "$step" | sed -nE 's/.*, byte ([0-9]+):.*/\1/p' | tr '\n' ' '
        echo
    done | python3 "$source_root/tests/jobs/streaming_reference.py" 4 10 2 0.5 30 text.txt > expected.txt
    losses table > table.txt
    paste table.txt expected.txt | awk '{ d = $2 - $NF; if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1 }
        END { if (NR != 30) exit 1 }' || { paste table.txt expected.txt; fail "the reference with $case"; }
    rm -rf table
done

# One island sends nothing, also where its stages do.
$orrery check tables.lua "${settings[@]}" --set train.steps=1 --set mesh.pp=2 --set train.microbatches=2 > check.txt ||
    fail "one island"

# In the simulator a message passes while steps run: links of 50 and 0.4 GB/s cost the same, those of 0.1 do not.
simulated() {  # simulated GB_S: seconds of a mean step on two nodes
    sed -E "s/^count = .*/count = 2/; s/^accelerators = .*/accelerators = 1/; s/^gb_s = 50 .*/gb_s = $1/" \
        "$source_root/configs/clusters/h100.toml" > cluster.toml
    grep -q "^gb_s = $1" cluster.toml || fail "h100.toml has another rate of its network"
    $orrery simulate tables.lua "${settings[@]}" --set train.steps=30 --set mesh.site=2 --cluster cluster.toml --json |
        sed -nE 's/.*"step_s": ?([0-9.e-]+).*/\1/p'
}
echo "$(simulated 50) $(simulated 0.4) $(simulated 0.1)" | tee steps.txt | awk '
    { if (NF != 3 || $2 > 1.01 * $1 || $3 < 1.5 * $1) exit 1 }' || { cat steps.txt; fail "messages that steps hide"; }

# A run resumes with the same bits after a fragment was sent (2, 3), and in a later round (11; 17, where another one has
# arrived); also one whose fragments are codes on their way, and verified.
for ends in "none 2 3 11 17 20" "int4 3 17 20" "owed 3 17 20"; do
    read -r codec ends <<< "$ends"
    [ -z "$long" ] || ends=$(seq -s " " 1 20)
    resumes=(--set mesh.site=2 --set checkpoint.every_steps=1 --set script.codec=${codec/owed/int4})
    [ $codec = owed ] && resumes+=(--set script.feedback=true)
    rm -rf whole part
    trained_in whole tables.lua "${settings[@]}" "${resumes[@]}" --set train.steps=20
    losses whole > whole.txt
    for steps in $ends; do
        trained_in part tables.lua "${settings[@]}" "${resumes[@]}" --set train.steps=$steps
    done
    losses part > part.txt
    cmp -s whole.txt part.txt || { paste whole.txt part.txt; fail "resumed with fragments of $codec on their way"; }
    mv whole.txt "$codec.txt"
    echo "streaming, codec $codec: resumed bit for bit after steps $ends" >> resumed.txt
done
cmp -s none.txt int4.txt && fail "codes change no loss"
cmp -s int4.txt owed.txt && fail "feedback changes no loss"
for feedback in false true; do
    $orrery verify tables.lua "${settings[@]}" --set mesh.site=2 --set script.codec=int4 --set train.steps=20 \
        --set script.feedback=$feedback > verified.log 2>&1 ||
        { cat verified.log; fail "verify of streaming with int4, feedback $feedback"; }
    grep -q "sent as int4 over site" verified.log || { cat verified.log; fail "verify does not name the codec"; }
done
[ -z "$long" ] || tee "$long" < resumed.txt
echo "1 passed, 0 failed"
