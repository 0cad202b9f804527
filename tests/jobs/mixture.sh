#!/usr/bin/env bash
# A mixture of three sources draws the same samples on dp = 1, 2 and 4, with a ramp, killed and resumed; `orrery data`
# prints them; targets that a mask ignores take no part; mistakes are refused.
source "$(dirname "$0")/lib.sh"

# Three sources of 32 bytes a sample, each sample with its number: a text, a pair of Megatron's, a headerless file.
samples() { awk -v n="$2" -v w="$1" 'BEGIN { for (i = 0; i < n; ++i) printf "%s %06d is what stands here.\n", w, i }'; }
samples web 900 > web.txt # 3 + 1 + 6 + 22 = 32 bytes
samples ink 300 > ink.txt
samples elf 200 > elf.txt
$orrery tokenize ink.txt -o ink > /dev/null || fail "tokenize -o"
$orrery tokenize elf.txt elf.bin > /dev/null || fail "tokenize"
cat > mix.toml << 'TOML'
[data]
mix = ["0.5 web.txt", "0.3 ink.bin", "0.2 elf.bin"]
vocab = 256
tokens_per_sequence = 32
validation = 0.1
[train]
sequences_per_step = 8
steps = 24
evaluate_every = 12
evaluate_batches = 2
[checkpoint]
every_steps = 8
[run]
seed = 5
timeout_s = 20
[script]
layers = 1
embed = 48
heads = 4
warmup = 5
TOML
gpt=("$source_root/scripts/gpt.lua" --config mix.toml)
trained() { trained_in "$1" "${gpt[@]}" "${@:2}"; }  # trained FOLDER [settings]
# Goes on with a run that was killed, once its ranks are gone.
trained_on() { $orrery run "${gpt[@]}" --set run.folder="$1" "${long[@]}" > "$1.log" 2>&1; }
# alike A B: the same losses but for the order of sums.
alike() {
    paste <(losses "$1") <(losses "$2") |
        awk '{ d = $2 - $5; if ($1 != $4 || d * d > 1e-8 * $2 * $2) exit 1 } END { exit NR != 24 }' ||
        { paste <(losses "$1") <(losses "$2"); fail "$2 does not train as $1"; }
}
drawn() { # drawn RUN: the samples of all steps, by file and number
    local step
    for step in $(seq 24); do
        $orrery data "$1" --step "$step" | sed -nE 's/^[0-9]+ of [0-9]+: (.*); .*/\1/p'
    done
}

trained one
grep -q "a mixture of 3 sources, in every 4096 samples:" one.log || { cat one.log; fail "no word of the mixture"; }
grep -q "1229 (30.00 %) of data file ink.bin: this run draws 5[78] of its 2[0-9]*, each 0.2[0-9] times" one.log ||
    { cat one.log; fail "how often a source repeats"; }
trained two --set mesh.dp=2
trained four --set mesh.dp=4
alike one two
alike one four
drawn one > one.drawn
drawn four > four.drawn
[ "$(wc -l < one.drawn)" -eq 192 ] && cmp one.drawn four.drawn || fail "dp=4 draws other samples"
for source in web.txt ink.bin elf.bin; do
    grep -q "data file $source, byte" one.drawn || fail "nothing is drawn of $source"
done

# What is printed is what lies there, byte for byte.
$orrery data one --step 7 > seven.txt || fail "orrery data"
python3 - << 'PY' || fail "what orrery data prints"
import re
data = open("seven.txt", "rb").read()
texts = {name: open(name[:3] + ".txt", "rb").read() for name in ("web.txt", "ink.bin", "elf.bin")}
head, data = data.split(b"\n", 1)
assert head == b"step 7: 8 samples, from the 48 on", head
for i in range(8):
    line, data = data.split(b"\n", 1)
    at = re.fullmatch(rb"(\d) of 8: data file (\S+), byte (\d+): sample (\d+), token (\d+)(?: in document 0)?; "
                      rb"32 tokens, 32 bytes of text", line)
    assert at and int(at[1]) == i + 1, line
    name, byte, sample, token = at[2].decode(), int(at[3]), int(at[4]), int(at[5])
    assert byte == token * (1 if name == "web.txt" else 2) and token == 32 * sample, line
    text = texts[name][token:token + 32]
    assert data[:33] == text + b"\n" and text.endswith(b"stands here.\n"), (data[:33], text)
    data = data[33:]
assert data == b"", data
PY
$orrery data one --step 7 --ids | sed -n 3p | grep -qE '^([0-9]+ ){31}[0-9]+$' || fail "ids"

# With a ramp the same samples in the same order, in other steps.
trained ramp --set train.ramp_start=2 --set train.ramp_increment=2 --set train.ramp_samples=36 --set mesh.dp=2
drawn ramp > ramp.drawn
lines=$(wc -l < ramp.drawn)
[ "$lines" -lt 192 ] && cmp ramp.drawn <(head -n "$lines" one.drawn) || fail "a ramp draws other samples"

# Killed and resumed: the same losses, bit for bit.
long=(--set mesh.dp=2 --set train.steps=600 --set train.evaluate_every=0 --set checkpoint.every_steps=40)
trained whole "${long[@]}"
left=600
for try in 1 2 3 4 5; do # until one is killed before its end
    [ "$left" -eq 600 ] || break
    rm -rf killed
    setsid $orrery run "${gpt[@]}" --set run.folder=killed "${long[@]}" > killed.log 2>&1 &
    launcher=$!
    wait_for steps_done killed 50 || { cat killed.log; fail "the run to be killed"; }
    kill -9 -- -$launcher 2> /dev/null
    wait $launcher 2> /dev/null
    left=$(losses killed | wc -l)
done
[ "$left" -lt 600 ] || fail "no run was killed before its end in $try tries"
wait_for trained_on killed || { cat killed.log; fail "a killed run does not go on"; }
cmp <(losses killed) <(losses whole) || fail "killed and resumed: other losses"
for step in 1 39 40 41 600; do
    cmp <($orrery data killed --step $step) <($orrery data whole --step $step) ||
        fail "killed: other samples in step $step"
done

# A checkpoint of other weights is not gone on from; data that has changed is not printed as what was read.
exits 2 weights $orrery run "${gpt[@]}" --set run.folder=one --set train.steps=30 \
    --set 'data.mix=["0.4 web.txt", "0.4 ink.bin", "0.2 elf.bin"]'
grep -q "cannot resume.*the saved source_1.of_4096 is 2048, but this run's is 1639" weights.err ||
    { cat weights.err; fail "weights"; }
cp elf.bin kept.bin
printf 'X' | dd of=elf.bin conv=notrunc bs=1 2> /dev/null
exits 2 changed $orrery data one --step 7
grep -q "differs from the data that the run in one read up to step 24" changed.err ||
    { cat changed.err; fail "changed data"; }
mv kept.bin elf.bin

# What the run has kept is run, whatever becomes of its script; what would draw other samples is refused.
mkdir beside
cat > beside/own.lua << 'LUA'
local o = require "orrery"
local data = o.data.text { path = "web.txt", seed = require "seed" }
local m = require "orrery.models.gpt" { layers = 1, embed = 4, heads = 1, vocab = data.vocab, seq = data.seq }
local p = o.trace("own", data.signature, function(b) return m:loss(b.tokens, b.targets) end)
p:train_with(o.optim.adamw {})
p:compile():train(data)
LUA
echo 'return 3' > beside/seed.lua
sed '/^\[script\]/,$d' mix.toml > own.toml
own=(--config own.toml --set data.mix=[] --set train.steps=8)
$orrery run beside/own.lua "${own[@]}" --set run.folder=own > own.log 2>&1 ||
    { cat own.log; fail "a script of its own"; }
$orrery data own --step 3 > before.txt || fail "orrery data of a script with a module"
echo 'return 99' > beside/seed.lua
cmp before.txt <($orrery data own --step 3) || fail "a module that was changed later changes what is printed"
exits 2 seed $orrery data own --step 3 --set run.script=beside/own.lua
grep -q "the saved data_seed is 3, but this run's is 99" seed.err || { cat seed.err; fail "another seed"; }
rm -r beside
cmp before.txt <($orrery data own --step 3) || fail "the original script is needed"
for other in run.seed=6:seed train.sequences_per_step=4:sequences_per_step data.validation=0.2:validation \
    'train.ramp_start=2 --set train.ramp_increment=2 --set train.ramp_samples=36:ramp' \
    data.tokens_per_sequence=16:sequence; do
    # shellcheck disable=SC2086
    exits 2 other $orrery data own --step 3 --set ${other%:*}
    grep -q "differs from the data that the run in own read up to step 8: the saved ${other#*:} is" other.err ||
        { cat other.err; fail "$other"; }
done

# A file of its own to evaluate: nothing is held out of the others.
samples web 64 > held.txt
trained held --set data.validation_path=held.txt --set train.evaluate_batches=100
[ "$(sed -nE 's/.*"eval_tokens":([0-9]+).*/\1/p' held/metrics.jsonl | tail -1)" -eq $((63 * 32)) ] ||
    { grep eval held/metrics.jsonl; fail "not all of the held-out file was evaluated"; }

$orrery data held --step 2 > held.step || fail "orrery data of a run with held-out data of its own"

# Targets that a mask ignores: of each line only the completion counts.
awk 'BEGIN { for (i = 0; i < 800; ++i)
    printf "{\"p\": \"%d and %d? \", \"c\": \"%d!\"}\n", i % 9, i % 7, i % 9 + i % 7 }' > sums.jsonl
$orrery tokenize sums.jsonl --prompt p --completion c -o sums > /dev/null || fail "tokenize --prompt"
masked=(--set data.mix=[] --set data.path=sums.bin --set data.validation=0 --set train.evaluate_every=0)
for dp in 1 2; do trained masked$dp "${masked[@]}" --set mesh.dp=$dp; done
alike masked1 masked2
mv sums.mask aside && trained unmasked "${masked[@]}" && mv aside sums.mask
cmp -s <(losses masked1) <(losses unmasked) && fail "a mask changes nothing"
awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(last < first * 0.8) }' <(losses masked1) ||
    fail "masked: it learns nothing"
$orrery data masked1 --step 1 | grep -q "bytes of text, 2[0-9] targets ignored" || fail "masked targets are not told"
yes '{"p": "nothing of this counts", "c": ""}' | head -100 > empty.jsonl
$orrery tokenize empty.jsonl --prompt p --completion c -o empty > /dev/null || fail "tokenize, empty completions"
tr '\0-\377' '\377' < empty.mask > full.mask && mv full.mask empty.mask
exits 1 empty $orrery run "${gpt[@]}" "${masked[@]}" --set run.folder=empty --set data.path=empty.bin
reason="step 1: no target in its 8 samples counts for the loss.*all targets are ignored or masked"
grep -q "$reason.*file empty.bin, byte" \
    empty.err ||
    { cat empty.err; fail "a step without targets"; }
# The same of held-out data does not mean that the run has diverged.
trained unheld "${masked[@]}" --set data.validation_path=empty.bin --set train.evaluate_every=2
grep -q "step 2: no loss on held-out data: no target in the samples counts" unheld.log &&
    ! $orrery checkpoints list unheld | grep -q suspect || { cat unheld.log; fail "held-out data without targets"; }
exits 0 verified $orrery verify "${gpt[@]}" "${masked[@]}" --set mesh.dp=2

# refused WORDS SETTINGS...
refused() {
    local words=$1 missing
    shift
    exits 2 refused $orrery check "${gpt[@]}" "$@"
    missing=$(missing_word "$words" "$(cat refused.err)")
    [ -z "$missing" ] || { cat refused.err; fail "no \"$missing\": $*"; }
}
refused "sources sum to 0|a weight above 0|--set data.mix" --set 'data.mix=["0 web.txt", "0 ink.bin"]'
refused 'source 2 has the weight -1|not negative' --set 'data.mix=["1 web.txt", "-1 ink.bin"]'
refused 'data.mix[1] is "web.txt"|expected a weight and a file' --set 'data.mix=["web.txt"]'
refused 'data.mix and data.path = web.txt|leave one of them out' --set data.path=web.txt
refused 'data file nowhere.bin|No such file' --set 'data.mix=["1 web.txt", "1 nowhere.bin"]'
refused 'data file ink.bin: token 0 has id 105, at byte 0; the model' \
    --set 'data.mix=["1 ink.bin", "1 elf.bin"]' --set data.vocab=54
for step in 0 1.5 1000000000001 1152921504606846977; do
    exits 2 step timeout 20 $orrery data one --step $step
    grep -q -- "--step" step.err || { cat step.err; fail "--step $step"; }
done
# A file to evaluate is read by its own name: the same text, and the same bytes as tokens beside their pair's index.
head -c 3000 web.txt > late.txt
exits 0 late_tokens "$orrery" tokenize late.txt -o late_pair
for held in late.txt late_pair.bin; do
    rm -rf kind
    run_tiny kind 4 --set data.validation=0 --set data.validation_path=$held --set train.evaluate_batches=100 \
        > kind.log 2>&1 || { cat kind.log; fail "$held"; }
    grep -o '"eval_loss":[0-9.]*' kind/metrics.jsonl >> kinds.txt
done
[ "$(sort -u kinds.txt | wc -l)" -eq 1 ] || { cat kinds.txt; fail "a text and its bytes as tokens differ"; }
echo "1 passed, 0 failed"
