#!/usr/bin/env bash
# The user's mistakes: exit code 2, a message that names place, found, expected and remedy, and nothing written.
source "$(dirname "$0")/lib.sh"
failures=0

# refused NAME WORDS -- command...: exit 2, every word (separated by |) in the message, no folder made.
refused() {
    local name=$1 words=$2 out code word
    shift 3
    out=$("$@" 2>&1 > /dev/null)
    code=$?
    [ $code -eq 2 ] || { echo "FAILED $name: exit code $code, expected 2: $out"; failures=$((failures + 1)); return; }
    word=$(missing_word "$words" "$out")
    [ -z "$word" ] || { echo "FAILED $name: no \"$word\" in: $out"; failures=$((failures + 1)); return; }
    [ ! -e run ] || { echo "FAILED $name: it wrote $(find run)"; failures=$((failures + 1)); rm -rf run; return; }
    word=${out%%$'\n'*} && echo "$name: ${word:0:150}"
}

cat > good.toml <<'TOML'
[run]
folder = "run"
[mesh]
dp = 2
[data]
path = "text.txt"
tokens_per_sequence = 32
validation = 0.1
[train]
steps = 4
sequences_per_step = 4
[script]
layers = 1
embed = 48
heads = 3
TOML
gpt=$source_root/scripts/gpt.lua
# refused_set NAME WORDS SETTING...: the good configuration with settings over it.
refused_set() {
    local name=$1 words=$2 sets=() setting
    shift 2
    for setting in "$@"; do sets+=(--set "$setting"); done
    refused "$name" "$words" -- "$orrery" run "$gpt" --config good.toml "${sets[@]}"
}
sed 's/steps = 4/stepps = 4/' good.toml > misspelt.toml
refused "misspelt key" 'misspelt.toml:10:1|stepps|did you mean "steps"' -- "$orrery" run "$gpt" --config misspelt.toml
sed 's/steps = 4/steps = "four"/' good.toml > type.toml
refused "wrong type" 'type.toml:10|train|steps|integer' -- "$orrery" run "$gpt" --config type.toml
sed 's/\[script\]/[scripts]/' good.toml > table.toml
refused "unknown table" 'table.toml|scripts|script' -- "$orrery" run "$gpt" --config table.toml
refused "missing config" 'nowhere.toml' -- "$orrery" run "$gpt" --config nowhere.toml
refused "missing script" 'script nowhere.lua not found|name a Lua file' -- "$orrery" run nowhere.lua --config good.toml
refused_set "unknown transport" '--set|shmm|shm' \
    run.transport=shmm
# A typo in a backend's own table, used by this run or not, is found before a rank starts, and by check.
for table in device.cpu transport.shm transport.gloo store.posix rendezvous.tcp; do
    refused_set "typo in [$table]" "--set $table.timeut=1|timeut|[$table]" $table.timeut=1
    refused "typo in [$table], check" 'timeut' -- "$orrery" check "$gpt" --config good.toml --set $table.timeut=1
done
refused "neighbour in [device.cpu]" 'did you mean "reference"' -- \
    "$orrery" check "$gpt" --config good.toml --set device.cpu.referense=true
# A plugin of another build is refused before any of its code runs.
bad_plugins=$(dirname "$orrery")/tests/bad_plugins
[ -e "$bad_plugins/liborrery_store_stale.so" ] || fail "no $bad_plugins: build the target bad_plugins"
built='built for another version of orrery|built for  orrery 7f3a91c0, gcc 11, debug|this is    orrery '
refused_set "stale plugin" \
    "--set run.store=stale|$bad_plugins/liborrery_store_stale.so|$built|cmake --build build --target store_stale" \
    "plugins.path=[\"$bad_plugins\"]" run.store=stale
refused_set "a strategy's options are the script's" 'strategy' strategy.data.axis=tp
refused_set "ranks against the mesh" 'run.ranks = 3|dp=2 has 2 ranks|--nodes' run.ranks=3
refused "ranks and nodes against the mesh" 'run.ranks = 2|each of 2 hosts|dp=2 has 2 ranks' -- \
    env ORRERY_TOKEN=0123456789abcdef "$orrery" run "$gpt" --config good.toml --set run.ranks=2 --nodes 2 \
    --rendezvous 127.0.0.1:"$(free_port)"
refused "ranks of another launcher" 'run.ranks = 1|torchrun started 2' -- env RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 \
    MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$orrery" run "$gpt" --config good.toml --set run.ranks=1
refused "flags that another launcher overrules" '--nodes|torchrun' -- env RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 \
    LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$orrery" run "$gpt" --config good.toml --nodes 2
refused_set "resume that is no word" 'run.resume|"autp"|did you mean "auto"' run.resume=autp
refused_set "nothing to resume" 'run.resume = "required"|run/checkpoints|no checkpoint' run.resume=required
refused "resume and start over" 'required|--fresh' -- \
    "$orrery" run "$gpt" --config good.toml --fresh --set run.resume=required
refused_set "token width" 'data.token_bytes|2 or 4' data.path=odd.bin data.vocab=300 data.token_bytes=3
refused_set "half a ramp" 'train.ramp_samples is missing' train.ramp_start=2 train.ramp_increment=2
refused_set "a ramp that misses the batch" 'gpt.lua|does not reach the full batch of 4' \
    train.ramp_start=1 train.ramp_increment=2 train.ramp_samples=9
refused_set "a ramp that the mesh cannot split" 'batch=1|dp=2|train.ramp_start' \
    train.ramp_start=1 train.ramp_increment=1 train.ramp_samples=9
refused_set "a ramp of torn micro-batches" 'gpt.lua|batch of 3|not divisible into micro-batches' \
    train.ramp_start=3 train.ramp_increment=1 train.ramp_samples=9 train.microbatches=2
refused_set "memory of the whole session" 'memory_gib|too much' device.memory_gib=0.00001
refused_set "unknown script option" 'layerz|layers' \
    script.layerz=3
echo 'print("nothing to train")' > none.lua
for command in check draw verify sample; do
    refused "a script without a program, $command" 'none.lua|compiled no program|program:compile' -- \
        "$orrery" $command none.lua
done
refused_set "missing data" 'nowhere.txt|data.path' \
    data.path=nowhere.txt
: > empty.bin
refused_set "empty token file" 'empty.bin|is empty|set data.path' \
    data.path=empty.bin data.vocab=256
head -c 4001 text.txt > odd.bin
refused_set "truncated token file" 'odd.bin|4001 bytes|truncated' \
    data.path=odd.bin data.vocab=30000
"$orrery" tokenize text.txt text.bin > /dev/null || fail "tokenize"
cp text.txt kept.txt
ln text.txt same.txt
"$orrery" tokenize text.txt same.txt > /dev/null 2> said.txt
[ $? -eq 2 ] && grep -q "are the same file" said.txt || { cat said.txt; fail "tokenize over its own text"; }
cmp text.txt kept.txt || fail "tokenize has overwritten its text"
rm same.txt
refused_set "more ranks than there are" 'mesh.dp = 1000000000|more than 1048576 ranks' \
    mesh.dp=1000000000
refused_set "token file of an unknown vocabulary" 'data.vocab is missing|text.bin|256' \
    data.path=text.bin
refused_set "token beyond the vocabulary" 'text.bin|vocab' \
    data.path=text.bin data.vocab=64
refused_set "mesh that does not fit the batch" 'batch|4|dp|3' \
    mesh.dp=3
refused_set "misspelt mesh axis" 'mesh.dq = 2|splits nothing|did you mean "dp"' \
    mesh.dq=2
refused_set "share out of bounds" '--set data.validation=0.7|data.validation is 0.7|0.5' \
    data.validation=0.7
refused_set "threads of a device" '--set device.cpu.threads=2|run.threads_per_rank' \
    device.cpu.threads=2
ORRERY_CPU_ISA=avx3 refused_set "unknown instruction set" 'ORRERY_CPU_ISA|avx3|portable, avx2 or avx512'
refused_set "option of another model" 'script.qk_norm|gpt has no such option' \
    script.qk_norm=true
refused "ranks of two hosts over shared memory" \
    '--set run.transport=shm|with 1 on each host, ranks 0 and 1 of axis dp|transport.axis.dp' -- \
    "$orrery" run "$gpt" --config good.toml --set run.transport=shm --nodes 2
refused "the same, checked" 'transport shm connects ranks on one host only|gloo' -- \
    "$orrery" check "$gpt" --config good.toml --set run.ranks=1
"$orrery" check "$gpt" --config good.toml --set run.ranks=2 > /dev/null || fail "shared memory of one host is refused"
refused "a rendezvous without port" '--rendezvous ::1:29912|[fd00::1]:29500' -- \
    "$orrery" run "$gpt" --config good.toml --rendezvous ::1:29912
refused "a free port for two hosts" 'port 0|cannot know' -- env ORRERY_TOKEN=0123456789abcdef \
    "$orrery" run "$gpt" --config good.toml --set run.transport=gloo --nodes 2 --rendezvous 192.0.2.1:0
two_nodes=("$orrery" run "$gpt" --config good.toml --set run.transport=gloo --nodes 2 --rendezvous)
refused "loopback address for two hosts" '--rendezvous localhost:29912|no other host reaches|127.0.1.1' -- \
    env ORRERY_TOKEN=0123456789abcdef "${two_nodes[@]}" localhost:29912
refused "secret of a few letters" 'ORRERY_TOKEN has 5 characters|16' -- \
    env ORRERY_TOKEN=short "${two_nodes[@]}" 192.0.2.1:29912
install -m 600 /dev/null secret; echo 0123456789abcdef > secret
install -m 644 secret open_secret; install -m 600 /dev/null short_secret; echo short > short_secret
printf '0123456789abcdef\nanother line\n' > lines_secret; chmod 600 lines_secret; mkfifo -m 600 pipe_secret
refused "secret that others may read" 'ORRERY_TOKEN_FILE: open_secret has mode 0644|expected 0600|chmod 600' -- \
    env ORRERY_TOKEN_FILE=open_secret "${two_nodes[@]}" 192.0.2.1:29912
refused "short secret in a file" 'ORRERY_TOKEN_FILE: short_secret has 5 characters|16' -- \
    env ORRERY_TOKEN_FILE=short_secret "${two_nodes[@]}" 192.0.2.1:29912
refused "file of more than a secret" 'lines_secret has more than one line|openssl rand' -- \
    env ORRERY_TOKEN_FILE=lines_secret "${two_nodes[@]}" 192.0.2.1:29912
refused "pipe as the secret's file" 'pipe_secret is a named pipe, expected a file' -- \
    env ORRERY_TOKEN_FILE=pipe_secret "${two_nodes[@]}" 192.0.2.1:29912
refused "secret's file that is not there" 'nowhere cannot be opened|holds the job' -- \
    env ORRERY_TOKEN_FILE=nowhere "${two_nodes[@]}" 192.0.2.1:29912
refused "two secrets" 'ORRERY_TOKEN and ORRERY_TOKEN_FILE are both set|unset one' -- \
    env ORRERY_TOKEN_FILE=secret ORRERY_TOKEN=0123456789abcdef "${two_nodes[@]}" 192.0.2.1:29912
refused "kind of rendezvous that is not there" 'run.rendezvous|no rendezvous "tcq"|did you mean "tcp"' -- \
    "$orrery" run "$gpt" --config good.toml --set run.rendezvous=tcq
refused "no secret where anybody can come" 'torchrun|192.0.2.1|set ORRERY_TOKEN' -- \
    env RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR=192.0.2.1 MASTER_PORT=1 \
    "$orrery" run "$gpt" --config good.toml
echo "mistake: no token"
refused "rank without its place on its host" 'is unknown: LOCAL_RANK and LOCAL_WORLD_SIZE|set both for each rank' -- \
    env RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 "$orrery" run "$gpt" --config good.toml
echo "mistake: LOCAL_RANK is missing"
cat > vocab.lua <<'LUA'
local o = require "orrery"
local data = o.data.tokens { seq = 32, batch = 4 }
local model = require "orrery.models.mlp" { vocab = 64 }
local p = o.trace("m", data.signature, function(b) return model:loss(b.tokens, b.targets) end)
p:train_with(o.optim.sgd {})
p:compile():train(data, { steps = 2 })
LUA
refused "token beyond the model's tables" "text.bin|the model's vocabulary is 64" -- \
    "$orrery" run vocab.lua --set data.path=text.bin --set run.folder=run
refused "mesh that does not fit the ranks" 'mesh|2|torchrun|3' -- \
    env RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 \
    "$orrery" run "$gpt" --config good.toml
cat > shapes.lua <<'LUA'
local o = require "orrery"
local data = o.data.file {}
o.trace("shapes", data.signature, function(batch)
  local x = o.param { name = "x", shape = { { "rows", 8 }, { "embed", 512 } } }
  local w = o.param { name = "w", shape = { { "inner", 500 }, { "mlp", 64 } } }
  return x:matmul(w), batch.tokens
end)
LUA
refused "shapes that do not match" 'shapes.lua:6|matmul|embed=512|inner=500' -- \
    "$orrery" run shapes.lua --config good.toml
sed -i '/^\[script\]/,$d' good.toml
echo 'while true do end' > forever.lua
refused "script that runs for ever" 'forever.lua:1|instructions' -- \
    "$orrery" run forever.lua --config good.toml --set lua.instructions_million=20
echo 'local x = = 3' > syntax.lua
refused "syntax error" 'syntax.lua:1' -- "$orrery" run syntax.lua --config good.toml
cp -r "$source_root/tests/parity/llama/model.safetensors" foreign.safetensors
cat >> good.toml <<'TOML'
[script]
layers = 1
embed = 48
heads = 3
TOML
refused_set "foreign safetensors" 'foreign.safetensors|no tensor|it has' \
    checkpoint.load=foreign.safetensors
head -c 1000 foreign.safetensors > cut.safetensors
refused_set "corrupt safetensors" 'cut.safetensors: the header should be |has 1000: it is truncated|copy or export' \
    checkpoint.load=cut.safetensors
refused_set "gradients by a codec that there is not" 'no codec "int88"|did you mean "int8"|gpt.lua' script.codec=int88
refused_set "a precision that there is not" '--set train.precision=fp4|bf16, f16, f32, fp8' train.precision=fp4
port=$(free_port)
"$orrery" run "$gpt" --config good.toml --nodes 1 --rendezvous 127.0.0.1:$port \
    --set train.steps=100000 --set run.folder=other > other.log 2>&1 &
holder=$!
wait_for steps_done other 1 || { cat other.log; fail "the run that holds the port"; }
refused "port in use" "$port|in use" -- \
    "$orrery" run "$gpt" --config good.toml --rendezvous 127.0.0.1:$port
refused "a folder in use" "other is in use" -- \
    "$orrery" run "$gpt" --config good.toml --set run.folder=other
kill -TERM $holder
wait $holder
refused "a folder that may not be resumed" 'run.resume = "never"|checkpoint of step|--fresh' -- \
    "$orrery" run "$gpt" --config good.toml --set run.folder=other --set run.resume=never
mkdir precious && touch precious/thesis.tex
refused "starting over in a folder that is no run's" 'precious|not a run' -- \
    "$orrery" run "$gpt" --config good.toml --set run.folder=precious --fresh
[ -e precious/thesis.tex ] || fail "--fresh moved a folder that is no run's"

# Each command explains itself, without a script too.
for command in run check verify sample evaluate draw tokenize plugins new-plugin bench; do
    "$orrery" $command --help > help.txt 2>&1 && grep -q Usage help.txt ||
        { echo "FAILED orrery $command --help: $(head -1 help.txt)"; failures=$((failures + 1)); }
done
"$orrery" run "$gpt" --help > help.txt 2>&1 && grep -q "(one of cosine, linear; default " help.txt ||
    { echo "FAILED orrery run gpt.lua --help: the valid values of an option"; failures=$((failures + 1)); }
[ $failures -eq 0 ] || { echo "0 passed, $failures failed"; exit 1; }
echo "1 passed, 0 failed"
