#!/usr/bin/env bash
# Islands: local SGD with a mean after every step is data parallelism; islands of several meshes train, evaluate, resume
# bit for bit after any step, and stop together.
source "$(dirname "$0")/lib.sh"
long=${ORRERY_LONG:-}  # ends runs after every step, between processes; its table says so
cat > islands.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { every = { 0, "" }, method = { "local_sgd", "" }, adamw = { false, "" }, zero = { 0, "" },
  resume = { "", "" } }
local data = o.data.text {}
local program = o.trace("islands", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "tokens", { "vocab", data.vocab }, { "embed", 32 })
  for i = 0, 1 do
    nn.scope("layers." .. i, function() x = x + nn.mlp(nn.layernorm(x, "ln"), { mlp = 48 }) end)
  end
  return nn.linear(nn.layernorm(x, "ln_f"), "head", { "vocab", data.vocab }):cross_entropy(batch.targets)
end)
local optimizer = opt.adamw and o.optim.adamw { lr = 1e-2 } or o.optim.sgd { lr = 0.3, momentum = 0 }
local strategies = {
  o.strategy.pipeline { axis = "pp" }, o.strategy.tensor { axis = "tp" },
  o.strategy.data { axis = "dp", zero = opt.zero },
}
if opt.every > 0 then
  o.methods[opt.method](program, { optimizer = optimizer, every = opt.every })
  table.insert(strategies, 1, o.strategy.islands { axis = "site", resume = opt.resume })
else
  program:train_with(optimizer)
  table.insert(strategies, 1, o.strategy.data { axis = "site" })
end
program:parallel(strategies)
local run = program:compile()
print(run:summary())
run:train(data)
LUA
settings=(--set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=12
    --set train.steps=6 --set data.validation=0.1 --set train.evaluate_every=3 --set train.evaluate_batches=2
    --set checkpoint.every_steps=1 --set run.timeout_s=20 --set run.transport=threads)
ran() { trained_in "$1" islands.lua "${settings[@]}" "${@:2}"; losses "$1" > "$1.txt"; }
same() { cmp -s "$1.txt" "$2.txt" || { paste "$1.txt" "$2.txt"; fail "$3"; }; }
numbers() { grep "\"$2\"" "$1/metrics.jsonl" | sed -E "s/.*\"$2\":([^,}]+).*/\1/"; }

# A mean after each step of SGD is data parallelism, on 2, 3 and 4 islands.
for count in 2 3 4; do
    islands=(--set mesh.site=$count --set train.steps=20 --set train.evaluate_every=5)
    ran plain "${islands[@]}"
    ran local "${islands[@]}" --set script.every=1
    for pair in "loss round_loss" "eval_loss eval_loss"; do
        set -- $pair
        paste <(numbers plain "$1") <(numbers local "$2") | awk -v what="$pair" '
            { d = $1 - $2; if (d < 0) d = -d; if (d > 1e-6 * $1 || NF != 2) bad = bad "\n" NR " " $0 }
            END { if (NR < 4 || bad != "") { print what, NR, bad; exit 1 } }' || fail "$count islands: $pair"
    done
    rm -rf plain local
done

# Islands resume after any step bit for bit, and train the same on each mesh.
close() {  # close A B: the losses of two files, step by step
    paste "$1.txt" "$2.txt" | awk '{ d = $2 - $(NF / 2 + 2); if (d < 0) d = -d; if (d > 1e-5 * $2) exit 1 }
        END { if (NR < 6) exit 1 }' || { paste "$1.txt" "$2.txt"; fail "$3"; }
}
for method in local_sgd diloco gossip; do
    cases=("" "mesh.pp=2 train.microbatches=2")
    [ $method = diloco ] && cases+=("mesh.tp=2" "mesh.dp=2 script.zero=3" "mesh.dp=2 script.zero=1")
    for case in "${cases[@]}"; do
        arguments=(--set mesh.site=2 --set script.method=$method --set script.every=2 --set script.adamw=true)
        for setting in $case; do arguments+=(--set "$setting"); done
        ends="3 6"  # in a round; without a mesh also at the end of one, and between processes
        [ -n "$case" ] || { ends="1 2 6"; arguments+=(--set run.transport=shm); }
        [ -z "$long" ] || { ends="1 2 3 4 5 6"; arguments+=(--set run.transport=shm); }
        ran whole "${arguments[@]}"
        [ "$(wc -l < whole.txt)" -eq 6 ] || { cat whole.txt; fail "six steps of $method with $case"; }
        for steps in $ends; do ran part --set train.steps=$steps "${arguments[@]}"; done
        same whole part "$method resumed with $case"
        echo "$method, 2 islands of ${case:-one rank}: resumed bit for bit after steps $ends" >> resumed.txt
        [ -z "$case" ] && cp whole.txt alone.txt
        close alone whole "$method with $case"
        rm -rf whole part
    done
done

# Whole rounds agree with one device that runs each island's part in turn, and a wrong value of one island is found.
verify=($orrery verify islands.lua "${settings[@]}" --set mesh.site=2 --set script.adamw=true)
for case in local_sgd gossip "diloco mesh.tp=2" "diloco mesh.dp=2 script.zero=3" \
    "diloco mesh.pp=2 train.microbatches=2"; do
    arguments=(--set script.every=3)
    for setting in script.method=$case; do arguments+=(--set "$setting"); done
    exits 0 verified "${verify[@]}" "${arguments[@]}"
    [ "$(grep -c ^PASS: verified.txt)" -ge 2 ] && grep -q "verified as .*inner\*2" verified.txt ||
        { cat verified.txt; fail "verify $case"; }
done
exits 1 wrong "${verify[@]}" --set script.every=1 --set mesh.tp=2 \
    --inject scale,rank=3,tensor=layers.1.down.bias.grad,by=1.001
grep -q "where  *rank 3 (site=1 tp=1), step 1" wrong.txt || { cat wrong.txt; fail "verify finds no wrong gradient"; }

# Four islands end as a float64 reference.
cat > table.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { method = { "diloco", "" } }
local data = o.data.file {}
local program = o.trace("table", data.signature, function(batch)
  local table = o.param { name = "table", shape = { { "vocab", data.vocab }, { "next", data.vocab } } }
  return batch.tokens:embedding(table):cross_entropy(batch.targets)
end)
o.methods[opt.method](program, { every = 10, optimizer = o.optim.adamw { lr = 0.05, decay = 0, clip = false } })
program:parallel { o.strategy.islands { axis = "site" }, o.strategy.data { axis = "dp", zero = 3 } }
program:compile():train(data)
LUA
table=(table.lua "${settings[@]}" --set train.sequences_per_step=8 --set train.steps=30 --set mesh.site=4
    --set train.evaluate_every=0 --set checkpoint.every_steps=0)
as_expected() {  # as_expected METHOD: the losses of run table and of expected.txt
    losses table > table.txt
    paste table.txt expected.txt | awk '{ d = $2 - $NF; if (d < 0) d = -d; if (d > 1e-5 * $2 || NF < 5) exit 1 }
        END { if (NR != 30) exit 1 }' || { paste table.txt expected.txt; fail "the reference of $1"; }
}
for method in local_sgd diloco gossip; do
    for mesh in mesh.dp=1 mesh.dp=2; do
        trained_in table "${table[@]}" --set $mesh --set script.method=$method
        # The samples of a step are the same on each mesh and with each method.
        [ -s offsets.txt ] || for step in $(seq 30); do
            $orrery data table --step "$step" | sed -nE 's/.*, byte ([0-9]+):.*/\1/p' | tr '\n' ' '
            echo
        done > offsets.txt
        python3 "$source_root/tests/jobs/islands_reference.py" $method 4 10 30 text.txt < offsets.txt > expected.txt
        as_expected $method
        rm -rf table
    done
done

# Weights: a mask leaves island 2 without targets in a whole round, island 3 in two steps, island 0 in one, and island 1
# with one target of four in the first round. The mean is that of what counted, and a step of nothing changes nothing.
$orrery tokenize text.txt -o masked > /dev/null || fail "tokenize"
python3 - << 'PY' || fail "the mask"
steps = [list(map(int, line.split())) for line in open("offsets.txt")]
size = len(open("text.txt", "rb").read())
bits = bytearray((size + 7) // 8)
def ignored(first, last, island, of=(1, 2, 3, 4)):
    for offsets in steps[first - 1:last]:
        for at in (at for offset in offsets[2 * island:2 * island + 2] for at in range(offset + 1, offset + 17)):
            if at % 4 + 1 in of:
                bits[at // 8] |= 1 << at % 8
ignored(11, 20, 2)
ignored(3, 4, 3)
ignored(25, 25, 0)
ignored(1, 10, 1, (1, 2, 3))
open("masked.mask", "wb").write(bits)
PY
masked=(--set data.path=masked.bin --set data.vocab=256)
trained_in table "${table[@]}" "${masked[@]}"
python3 "$source_root/tests/jobs/islands_reference.py" diloco 4 10 30 text.txt masked.mask < offsets.txt > expected.txt
grep -q '^25 nan' expected.txt && grep -q '^25 null' <(losses table) || fail "island 0 counts nothing in step 25"
sed -i '/^25 /s/nan/0/' expected.txt
sed -i '/"step":25,/s/"loss":null/"loss":0/' table/metrics.jsonl
as_expected "diloco with weights"
tr '\0-\377' '\377' < masked.mask > full.mask && mv full.mask masked.mask
exits 1 empty $orrery run "${table[@]}" "${masked[@]}" --set run.folder=empty
grep -q "step 10: no target in its 8 samples, nor in those of earlier steps since the islands last met" empty.err ||
    { cat empty.err; fail "a round that counts nothing"; }

# Another number of islands resumes as the script says: with the mean of params within a round, or with copies.
arguments=(--set script.every=2 --set script.adamw=true)
ran two "${arguments[@]}" --set mesh.site=2 --set train.steps=3
for case in "3 mean" "4 copies"; do
    set -- $case
    cp -r two part
    ran part "${arguments[@]}" --set mesh.site=$1 --set script.resume=$2 --set train.steps=3
    grep -q "resume from 2: each has" part.log || { cat part.log; fail "$case: what each island has is not reported"; }
    paste <(numbers two eval_loss | tail -1) <(numbers part eval_loss | tail -1) | awk '
        { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 1e-6 * $1) exit 1 }' || fail "the mean of $case islands"
    rm -rf part
done
refused "it is of 2 islands, the program of 3|choose how they resume in o.strategy.islands: resume = \"mean\"" \
    $orrery run islands.lua "${settings[@]}" "${arguments[@]}" --set mesh.site=3 --set run.folder=two
refused "step 3 is within the round|resume with 2 islands until the round ends" \
    $orrery run islands.lua "${settings[@]}" "${arguments[@]}" --set mesh.site=3 --set run.folder=two \
    --set script.resume=round
ran two "${arguments[@]}" --set mesh.site=2 --set train.steps=4
ran two "${arguments[@]}" --set mesh.site=3 --set script.resume=round
[ "$(wc -l < two.txt)" -eq 6 ] || { cat two.log; fail "three islands go on at the end of a round"; }

# A stop takes effect where islands meet.
$orrery run islands.lua "${settings[@]}" --set run.transport=shm --set mesh.site=2 --set script.every=5 \
    --set train.steps=1000000 \
    --set train.evaluate_every=0 --set checkpoint.every_steps=0 --set run.folder=stopped > stopped.log 2>&1 &
run=$!
wait_for steps_done stopped 7 || fail "seven steps"
kill -TERM $run
wait $run && fail "a stopped run exits with 0"
grep -Eq "after step [0-9]*[05]; the checkpoint is committed" stopped.log || { tail -5 stopped.log; fail "a stop"; }
refused "not supported with islands" $orrery run islands.lua --set data.path=text.txt --set mesh.site=2 \
    --set data.tokens_per_sequence=16 --set train.sequences_per_step=12 --set train.steps=6 --set script.every=5 \
    --set checkpoint.mtbf_days=100 --set 'checkpoint.every="auto"' --set run.folder=auto

# A run of islands evaluates, samples and exports its outer params, or the mean where there are none.
$orrery tokenize text.txt -o held > /dev/null || fail "tokenize"
perplexity() { sed -nE 's/^perplexity +//p' "$1"; }
for method in diloco local_sgd; do
    exits 0 gpt $orrery run "$source_root/scripts/gpt.lua" --set data.path=text.txt --set data.tokens_per_sequence=16 \
        --set train.sequences_per_step=6 --set train.steps=3 --set script.layers=1 --set script.embed=32 \
        --set script.heads=2 --set script.lr=0.05 --set script.warmup=1 --set script.method=$method \
        --set script.sync_every=2 --set mesh.site=3 --set run.transport=threads --set run.folder=$method
    exits 0 sampled $orrery sample $method --tokens 8 --temperature 0
    grep -q "sampling from step 3" sampled.err || { cat sampled.err; fail "sample of $method"; }
    exits 0 exported $orrery export $method $method.exported
    exits 0 own $orrery evaluate $method held.bin
    exits 0 published $orrery evaluate $method.exported held.bin
    paste <(perplexity own.txt) <(perplexity published.txt) | awk '
        { d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > 1e-6 * $1) exit 1 } END { if (NR != 1) exit 1 }' ||
        { cat own.txt published.txt; fail "the exported model of $method is another one"; }
done
[ -z "$long" ] || tee "$long" < resumed.txt
echo "1 passed, 0 failed"
