#!/usr/bin/env bash
# What cannot run does not pass `orrery check`, and what is no file is neither waited for nor read for ever.
source "$(dirname "$0")/lib.sh"
failures=0

# refused NAME WORDS -- command...: exit 2 within 20 s, every word (separated by |) in the message.
refused() {
    local name=$1 words=$2 out code word
    shift 3
    out=$(bounded "$@" 2>&1 > /dev/null < /dev/null)
    code=$?
    [ $code -eq 2 ] || { echo "FAILED $name: exit code $code, expected 2: $out"; failures=$((failures + 1)); return; }
    word=$(missing_word "$words" "$out")
    [ -z "$word" ] || { echo "FAILED $name: no \"$word\" in: $out"; failures=$((failures + 1)); return; }
    word=${out%%$'\n'*} && echo "$name: ${word:0:150}"
}
bounded() {
    if [ "$1" = as_rank ]; then "$@"; else timeout "${bound:-20}" "$@"; fi
}
taken() {
    local name=$1
    shift
    "$@" > taken.log 2>&1 || { echo "FAILED $name: exit code $?: $(tail -3 taken.log)"; failures=$((failures + 1)); }
}

gpt=$source_root/scripts/gpt.lua
good=("$orrery" check "$gpt" --set data.path=text.txt --set data.tokens_per_sequence=32 --set data.validation=0.1
    --set train.steps=4 --set train.sequences_per_step=4 --set script.layers=1 --set script.embed=48
    --set script.heads=3)
taken "the settings that the others spoil" "${good[@]}"

# ---- gathers ahead of their readers: how far would fit
ahead() {
    sed "s/zero = opt.zero }/zero = 3, $1 }/" "$gpt" > ahead.lua
    refused "memory for $1" "$3" -- "$orrery" check ahead.lua "${good[@]:3}" --set script.layers=6 --set mesh.dp=2 \
        --set train.sequences_per_step=8 --set device.cpu.reference=true --set device.memory_gib="$2"
}
ahead 'prefetch = 2' 0.0036 'gathers run 2 layers ahead|at most 1 layer fits|prefetch = 1'
ahead 'prefetch = 2' 0.0035 'it fits without that alone|prefetch = 0'
ahead 'prefetch = 2' 0.0033 'without that it does not fit either'
ahead 'prefetch_mib = 4' 0.0036 'gathers run 4.0 MiB ahead|prefetch = 0'

# ---- sizes and rates
refused_set() {
    local name=$1 words=$2
    shift 2
    refused "$name" "$words" -- "${good[@]}" "$@"
}
refused_set "layers below 0" 'gpt.lua:|layers is -1, expected an integer of at least 1' --set script.layers=-1
refused_set "no layers" 'layers is 0' --set script.layers=0
refused_set "half a layer" '--set script.layers=1.5' --set script.layers=1.5
refused_set "no width" 'embed is 0' --set script.embed=0
refused_set "heads that do not divide" '5 heads do not divide embed = 48' --set script.heads=5
refused_set "heads below 0" 'heads is -3' --set script.heads=-3
refused_set "kv_heads that do not divide" '2 kv_heads do not divide 3 heads' --set script.model=llama \
    --set script.kv_heads=2
refused_set "kv_heads below 0" 'kv_heads is -1' --set script.model=llama --set script.kv_heads=-1
refused_set "mlp below 0" 'mlp is -7' --set script.mlp=-7
refused_set "dropout of all" 'dropout|1' --set script.dropout=1.0
refused_set "std below 0" 'embed_std is -0.5' --set script.model=llama --set script.embed_std=-0.5
for number in nan inf -inf; do
    refused_set "lr = $number" "--set script.lr=$number: script.lr is the number $number, expected a finite" \
        --set script.lr=$number
done
refused_set "lr below 0" 'gpt.lua:|lr.cosine: peak is -0.001, expected a number of at least 0' --set script.lr=-1e-3
refused_set "warmup below 0" 'lr.cosine: warmup is -5' --set script.warmup=-5
refused_set "floor below 0" 'lr.cosine: floor is -' --set script.floor=-1.0
refused_set "decay below 0" 'optim.adamw: decay is -1' --set script.decay=-1.0
refused_set "another ZeRO" 'zero' --set script.zero=7
refused_set "vocabulary of none" '--set data.vocab=0: data.vocab is 0, expected at least 1' --set data.vocab=0
refused_set "steps below 0" 'train.steps is -1' --set train.steps=-1
refused_set "sequence of none" 'tokens_per_sequence is 0' --set data.tokens_per_sequence=0
refused_set "no rate of that name" 'script.schedule = sqare: expected cosine or linear' --set script.schedule=sqare

# ---- what a script makes of its own
script() {
    cat > "$1.lua"
}
trains='local o = require "orrery"
local data = o.data.text { path = "text.txt", batch = 4, seq = 16 }'
script float_input << LUA
$trains
local inputs = { data.signature[1], data.signature[2], { name = "noise", dtype = "f32", shape = { { "batch", 4 } } } }
local p = o.trace("m", inputs, function(b)
  local loss, count = require "orrery.models.mlp" {}:loss(b.tokens, b.targets)
  return loss + b.noise:sum(), count
end)
p:train_with(o.optim.sgd {})
p:compile():train(data, { steps = 2 })
LUA
refused "an input that nothing fills" 'float_input.lua:4|no data for the input "noise" f32[4]' -- \
    "$orrery" check float_input.lua
script other_dims << LUA
$trains
local p = o.trace("m", { tokens = o.array("i32", { { "batch", 4 }, { "seq", 8 } }) }, function(b)
  return require "orrery.models.mlp" {}:loss(b.tokens, b.tokens)
end)
p:train_with(o.optim.sgd {})
p:compile():train(data, { steps = 2 })
LUA
refused "an input of other dims" 'other_dims.lua:3|input "tokens" is i32[4,8]|"tokens" i32[batch,seq 16]' -- \
    "$orrery" check other_dims.lua
# rate NAME WORDS OPTIMIZER
rate() {
    script "$1" << LUA
$trains
local p = o.trace("m", data.signature, function(b)
  return require "orrery.models.mlp" {}:loss(b.tokens, b.targets)
end)
p:train_with($3)
p:compile():train(data, { steps = 2 })
LUA
    refused "$1" "$1.lua:6|$2" -- "$orrery" check "$1.lua"
}
rate lr_nan 'lr is |nan, expected a number of at least 0' 'o.optim.sgd { lr = 0 / 0 }'
rate peak_inf 'lr.linear: peak is inf' 'o.optim.sgd { lr = o.lr.linear { peak = 1e999, steps = 2 } }'
rate beta 'optim.adamw: beta2 is 1, expected a number from 0 to below 1' 'o.optim.adamw { beta2 = 1 }'
rate eps 'optim.adamw: eps is 0, expected a number above 0' 'o.optim.adamw { eps = 0 }'
rate clip 'optim.sgd: clip is -1' 'o.optim.sgd { clip = -1 }'
rate group 'group 1: lr_scale is -2' 'o.optim.sgd { groups = { { rank = 2, lr_scale = -2 } } }'
script unknown_op << LUA
$trains
o.trace("m", data.signature, function(b) return b.tokens:matmull() end)
LUA
refused "an op that there is not" \
    'unknown_op.lua:3: values have no field or op "matmull"|did you mean "matmul"?|all |orrery/meta.lua' -- \
    "$orrery" check unknown_op.lua

# ---- data that is not there; none at all is a plan's shapes
refused_set "data that is not there" "data file nowhere.txt not found from folder $(pwd)|--set data.path=" \
    --set data.path=nowhere.txt
taken "no data" "${good[@]}" --set data.path=
grep -q "no data: the plan is checked for its shapes only" taken.log ||
    { echo "FAILED no data: $(cat taken.log)"; failures=$((failures + 1)); }
refused_set "weights that are not there" 'nowhere.safetensors' --set checkpoint.load=nowhere.safetensors

# ---- weights that a model reads a part of, by check and by a rank that another launcher has started
llama=(--set "checkpoint.load=$source_root/tests/parity/llama/model.safetensors" --set data.vocab=97
    --set script.model=llama --set script.layers=1 --set script.embed=40 --set script.heads=4 --set script.kv_heads=2
    --set script.mlp=50)
tr -c '\n' 'A' < text.txt > letters.txt
left="gpt.lua:|llama/model.safetensors: the model has no param for 9 of its 21 tensors"
refused_set "weights of more layers" "$left|script.layers" --set data.path=letters.txt "${llama[@]}"
refused "weights of more layers, torchrun" "$left" -- as_rank 0 1 "$(free_port)" "$orrery" run "${good[@]:2}" \
    --set run.folder=run --set data.path=letters.txt "${llama[@]}"

# ---- empty values
refused_set "an empty number" '--set train.steps=: missing value after the "=", expected an integer' --set train.steps=
refused_set "an empty list" '--set plugins.path=: missing value|[]' --set plugins.path=
refused_set "an empty word" 'train.precision is ""|bf16' --set train.precision=
refused_set "an empty option" '--set script.lr=: script.lr is the text ""' --set script.lr=

# ---- what is no file
mkfifo pipe pipe.lua pipe.bin
bound=5
refused "a pipe as configuration" 'pipe: is a named pipe, expected a file' -- "$orrery" check "$gpt" --config pipe
refused "a pipe as script" 'pipe.lua: is a named pipe' -- "$orrery" check pipe.lua
echo 'require "pipe"' > module.lua
refused "a pipe as module" 'module.lua:1: no module "pipe"' -- "$orrery" check module.lua
refused_set "a pipe as data" 'pipe is a named pipe' --set data.path=pipe
refused_set "a pipe as tokens" 'pipe.bin is a named pipe' --set data.path=pipe.bin --set data.vocab=9
refused_set "a pipe as weights" 'pipe' --set checkpoint.load=pipe
refused "a pipe to tokenize" 'pipe is a named pipe' -- "$orrery" tokenize pipe out.bin
refused "a pipe for tokens" 'pipe is a named pipe' -- "$orrery" tokenize text.txt pipe
[ -p pipe ] || fail "tokenize put a file in the place of a pipe"
refused "a device as configuration" '/dev/zero: is a device' -- "$orrery" check "$gpt" --config /dev/zero
refused "a device as script" '/dev/zero: is a device' -- "$orrery" check /dev/zero
refused_set "a device as data" '/dev/zero is a device' --set data.path=/dev/zero
refused_set "a device as weights" '/dev/zero' --set checkpoint.load=/dev/zero
refused "a device to tokenize" '/dev/zero is a device' -- "$orrery" tokenize /dev/zero out.bin
refused "a folder as script's module" 'no module' -- "$orrery" check module.lua
truncate -s 1G large.lua
refused "a script of a gigabyte" 'large.lua: file too large: more than 16 MiB' -- "$orrery" check large.lua

# ---- the command's own words
refused "a command that there is not" 'no command "chek"|there are: bench, calibrate, check|did you mean "check"?' -- \
    "$orrery" chek
refused "an option that there is not" 'check: unknown option or argument --confg|did you mean "--config"?' -- \
    "$orrery" check "$gpt" --confg=a.toml
refused "the same, its value apart" 'did you mean "--config"?' -- "$orrery" check "$gpt" --confg a.toml
# ---- what is printed and cannot be written
"$orrery" plugins > /dev/full 2> full.log
[ $? -eq 1 ] && grep -q "cannot write standard output: No space left on device" full.log ||
    { echo "FAILED output onto a full disk: $(cat full.log)"; failures=$((failures + 1)); }
[ $failures -eq 0 ] || { echo "0 passed, $failures failed"; exit 1; }
echo "1 passed, 0 failed"
