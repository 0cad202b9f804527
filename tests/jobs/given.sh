#!/usr/bin/env bash
# What a script's calls give: a --set of the same key is refused by every command, a file's is told once, and the run's
# folder says what ran. A token file whose ids have another width than the default is refused.
source "$(dirname "$0")/lib.sh"
cat > a.lua << 'LUA'
local o = require "orrery"
local data = o.data.text { path = "text.txt", batch = 4, seq = 16 }
local model = require "orrery.models.mlp" { embed = 8, mlp = 8, vocab = 256 }
local program = o.trace("a", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
program:train_with(o.optim.sgd { lr = o.lr.linear { peak = 0.1 } }, { precision = "bf16" })
program:parallel { o.strategy.data { axis = "dp" } }
program:compile():train(data, { steps = 3, evaluate_every = 3 })
LUA
cat > a.toml << 'TOML'
[run]
timeout_s = 20
[mesh]
dp = 2
[train]
steps = 300
microbatches = 2
[data]
path = "other.txt"
validation = 0.1
TOML
# told NAME: the two lines of a start, each once in all that it says.
told() {
    [ "$(cat "$1.txt" "$1.err" | grep -c 'has no effect')" -eq 2 ] || { cat "$1.err"; fail "$1: not two lines"; }
    grep -qx 'train.steps = 300 of a.toml:6 has no effect: the script at a.lua:7 gives 3' "$1.err" ||
        fail "$1: train.steps"
    grep -qx 'data.path = "other.txt" of a.toml:9 has no effect: the script at a.lua:2 gives "text.txt"' "$1.err" ||
        fail "$1: data.path"
}
# recorded FOLDER: its config.toml says what ran, and where that is from.
recorded() {
    local line
    while read -r line; do
        tr -s ' ' < "$1/config.toml" | grep -qxF "$line" || { cat "$1/config.toml"; fail "$1: no \"$line\""; }
    done << 'LINES'
steps = 3 # a.lua:7
sequences_per_step = 4 # a.lua:2
precision = "bf16" # a.lua:5
evaluate_every = 3 # a.lua:7
path = "text.txt" # a.lua:2
tokens_per_sequence = 16 # a.lua:2
LINES
}
exits 0 first $orrery run a.lua --config a.toml --set run.folder=run
told first
recorded run
exits 0 restarts $orrery run a.lua --config a.toml --set run.folder=other --restarts 1
told restarts
for command in check draw verify "data --step 1"; do
    exits 0 command $orrery ${command%% *} a.lua --config a.toml $(sed -n 's/^[a-z]* //p' <<< "$command")
    told command
done

# The folder stands for the script's configuration: the learning rate still falls over its 300 steps.
cp -r run resumed
sed -i '/^given/!s/"run"/"resumed"/' resumed/config.toml
sed -i 's/steps = 3,/steps = 5,/' a.lua
exits 0 more $orrery run resumed
exits 0 whole $orrery run a.lua --config a.toml --set run.folder=whole
grep -q 'has no effect' more.txt more.err && { cat more.err; fail "a resumed run tells of what was recorded"; }
grep -q 'resumed with changed settings: train.steps 3 -> 5, text of a.lua$' more.err ||
    { cat more.err; fail "no change told"; }
cmp <(losses resumed) <(losses whole) || fail "the resumed run trains something else"
sed -i 's/steps = 5,/steps = 3,/' a.lua
echo "2 ranks: lines told once, 6 keys recorded, resumed equal"

# Whatever runs the script refuses what would change nothing.
a="a.lua --config a.toml"
for set in train.steps=9 data.path=more.txt train.sequences_per_step=8 train.precision=f32; do
    for command in "run run" "run $a" "check $a" "draw $a" "verify $a" "data --step 1 run" "evaluate run text.txt" \
        "sample run" "simulate run"; do
        refused "--set $set: ${set%%=*} has no effect: |a.lua:|leave --set ${set%%=*} out" $orrery $command --set $set
    done
done
refused 'train.microbatches has no effect: the script at b.lua:5 gives 2' $orrery simulate \
    "$(sed 's/"bf16"/"bf16", microbatches = 2/' a.lua > b.lua; echo b.lua)" --set data.validation=0 \
    --cluster "$source_root/configs/clusters/h100.toml" --set train.steps=3 --set train.microbatches=4
echo "refused by every command of a script"

# What the script reads of the configuration and gives a call may follow from it: nothing is refused or told.
sed 's/steps = 3,/steps = math.min(o.config.train.steps, 3),/
    s/seq = 16/seq = o.config.data.tokens_per_sequence * 2/
    s/"bf16"/"bf16", microbatches = o.config.train.microbatches \/\/ 2/' a.lua > reads.lua
exits 0 reads $orrery run reads.lua --set mesh.dp=2 --set run.folder=reads --set train.steps=900 \
    --set data.tokens_per_sequence=8 --set train.microbatches=2 --set run.timeout_s=20
for line in 'steps = 3 # reads.lua:7' 'tokens_per_sequence = 16 # reads.lua:2' 'microbatches = 1 # reads.lua:5'; do
    tr -s ' ' < reads/config.toml | grep -qxF "$line" || { cat reads/config.toml; fail "reads: no \"$line\""; }
done
sed 's/^local data = .*/local text = o.data.text { path = o.config.data.path, seq = 16 }\
local data = o.data.mixture { { text, 1 }, batch = 4 }/
    s/o.lr.linear { peak = 0.1 }/0.1/' a.lua > mixes.lua
printf '[mesh]\ndp = 2\n[run]\ntimeout_s = 20\n[data]\npath = "text.txt"\n' > mixes.toml
exits 0 mixes $orrery check mixes.lua --set data.path=text.txt --set mesh.dp=2
exits 0 mixes $orrery run mixes.lua --config mixes.toml --set run.folder=mixes
grep -q 'data.path.*has no effect' mixes.err && { cat mixes.err; fail "mixes: told of a path that is read"; }
grep -q '^path = "text.txt"' mixes/config.toml || { cat mixes/config.toml; fail "mixes: another path is recorded"; }
echo "what the script reads is used"

# What scale sets for its own sake a script may give; what a size is made of is refused in scale's words.
sized() { TMPDIR=$work $orrery scale "$1" --ranks 1 --steps 4 --rounds 1 --set train.sequences_per_step=4; }
sed 's/steps = 3, evaluate_every = 3/evaluate_every = 100, log_every = 1/' a.lua > sized.lua
exits 0 sized sized sized.lua
refused 'scale: --steps 4 has no effect: the script at a.lua:7 gives 3|remove the value of train.steps' sized a.lua
grep -q -e '--set' refused.err && { cat refused.err; fail "scale names a --set that was not given"; }

# Ids of 4 bytes.
$orrery tokenize text.txt wide.bin --token-bytes 4 > /dev/null || fail "tokenize"
wide() {
    $orrery "$@" --set data.path=wide.bin --set data.vocab=256 --set data.tokens_per_sequence=32 \
        --set train.sequences_per_step=4 --set train.steps=1 --set script.layers=1 --set script.embed=24 \
        --set script.heads=2
}
words='data file wide.bin|as in ids of 4 bytes|ids of 2 bytes: 48, 0, 32, 0, |ids of 4 bytes: 48, 32, 112, '
refused "$words|data.token_bytes = 4" wide run "$source_root/scripts/gpt.lua" --set run.folder=wide
exits 0 wide wide run "$source_root/scripts/gpt.lua" --set run.folder=wide --set data.token_bytes=4
refused 'as in ids of 4 bytes' $orrery evaluate run wide.bin
exits 0 scored $orrery evaluate run wide.bin --set data.token_bytes=4
