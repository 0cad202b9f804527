#!/usr/bin/env bash
# A new op from `orrery new-plugin op`, built against the installed package with nothing changed elsewhere: it trains
# under tp and ZeRO-3, verifies, and passes its generated tests. Ranks with another version of it are refused with both
# versions, devices without a kernel of it before anything starts, programs with ops that nobody brings by name.
source "$(dirname "$0")/lib.sh"
build=$(cd "$(dirname "$orrery")" && pwd)
cmake --install "$build" --prefix prefix > install.txt || fail "cmake --install"
orrery=$work/prefix/bin/orrery
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
flags=$(sed -n 's/^ORRERY_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt" | tr ';' ',')
[ -z "$flags" ] || export CXXFLAGS="-fsanitize=$flags" LDFLAGS="-fsanitize=$flags"

$orrery new-plugin op sundial first > new.txt || fail "new-plugin op"
# built FOLDER: its plugins are in FOLDER/build/plugins.
built() {
    { cmake -S "$1" -B "$1/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_COMPILER="$compiler" &&
        cmake --build "$1/build"; } > build.txt 2>&1 || { tail -n 30 build.txt; fail "$1 does not build"; }
}
built first
ctest --test-dir first/build --output-on-failure > tests.txt 2>&1 || { tail -n 60 tests.txt; fail "its tests"; }
for name in ops.sundial sundial; do
    grep -q "$name \.*.*Passed" tests.txt || { cat tests.txt; fail "the test $name did not run"; }
done
echo "a new op: trained under tp and ZeRO-3, verified, its generated tests passed"

# Its own computation, in other words: an op of the table and one of the plugin give one loss.
cat > pair.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { plugin = { true, "gate by the plugin op/swish_gate" } }
local data = o.data.file {}
local program = o.trace("pair", data.signature, function(batch)
  local x = nn.embedding(batch.tokens, "wte", { "vocab", data.vocab }, { "embed", 16 })
  local a, b = nn.linear(x, "up", { "mlp", 32 }), nn.linear(x, "gate", { "mlp", 32 })
  local h = opt.plugin and o.op.swish_gate(a, b) or a:swiglu(b)
  return nn.linear(h, "head", { "vocab", data.vocab }):cross_entropy(batch.targets)
end)
program:train_with(o.optim.adamw { lr = 1e-2 })
program:parallel { o.strategy.tensor { axis = "tp" } }
program:compile():train(data)
LUA
small=(--set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=4
    --set train.steps=8 --set run.timeout_s=20)
for precision in f32 bf16 f16; do
    for plugin in true false; do
        $orrery run pair.lua "${small[@]}" --set run.folder=pair-$precision-$plugin --set script.plugin=$plugin \
            --set train.precision=$precision --set mesh.tp=2 > log.txt 2>&1 || { cat log.txt; fail "pair.lua"; }
        losses pair-$precision-$plugin > $plugin.txt
    done
    [ "$(wc -l < true.txt)" -eq 8 ] || fail "no 8 losses in $precision"
    paste true.txt false.txt | awk -v most="$([ $precision = f32 ] && echo 1e-4 || echo 0.02)" \
        '{ d = $2 - $5; if (d > most || d < -most) bad = 1 } END { exit bad }' ||
        { paste true.txt false.txt; fail "swish_gate and swiglu differ in $precision"; }
done
$orrery run pair.lua "${small[@]}" --set run.folder=reference --set device.cpu.reference=true > log.txt 2>&1 ||
    { cat log.txt; fail "the reference kernels"; }
echo "swish_gate trains as swiglu does, in f32, bf16 and f16"

# said WORDS FILE: every word (separated by |) is in the file.
said() {
    local word
    word=$(missing_word "$1" "$(cat "$2")")
    [ -z "$word" ] || { cat "$2"; fail "no \"$word\""; }
}
# Another version on one rank.
cp -r first second && rm -rf second/build
sed -i 's/"op.sundial", "0.1"/"op.sundial", "0.2"/' second/sundial.cpp
built second
port=$(free_port)
for rank in 0 1; do
    plugins=$([ $rank = 0 ] && echo first || echo second)
    as_rank $rank 2 "$port" $orrery run first/try.lua "${small[@]}" --set mesh.dp=2 --set run.folder=versions \
        --set "plugins.path=[\"$plugins/build/plugins\"]" > rank$rank.txt 2>&1 &
    pids[rank]=$!
done
for rank in 0 1; do wait "${pids[rank]}" && { cat rank$rank.txt; fail "rank $rank ran with two versions"; }; done
said "the configuration differs between rank 1|plugin op/sundial: version 0.2, rank 0 has version 0.1" rank1.txt
echo "two versions: $(grep -m1 "plugin op/sundial" rank1.txt)"

# No kernel for the device; and none for the reference, nor for a device that is not here.
cp -r first bare && rm -rf bare/build
sed -i '/add_kernel("sundial", "\(cpu\|cuda\)"/d' bare/sundial.cpp
sed -i 's/^OpKernel cuda_kernel/[[maybe_unused]] &/' bare/sundial.cpp
built bare
refused() {
    local words=$1
    shift
    $orrery check bare/try.lua "${small[@]}" --set 'plugins.path=["bare/build/plugins"]' "$@" > out.txt 2>&1
    [ $? -eq 2 ] || { cat out.txt; fail "check $* did not end with code 2"; }
    said "$words" out.txt
}
refused "bare/try.lua:12:|op sundial of plugin op/sundial 0.1 has no kernel for device cpu; kernels of it: reference"
refused "has no kernel for device cpu" --set mesh.dp=2
! $orrery plugins | grep -A1 "device/cuda" | grep -q "cannot run here" ||
    refused "op sundial of plugin op/sundial 0.1 has no kernel for device cuda; kernels of it: reference" \
        --set run.device=cuda
sed -i '/add_kernel("sundial", "reference"/d' bare/sundial.cpp
sed -i 's/^OpKernel kernel(/[[maybe_unused]] &/' bare/sundial.cpp
built bare
refused "no kernel for device reference; kernels of it: none" --set device.cpu.reference=true
echo "no kernel: $(cat out.txt | head -n 1)"

# Names: of a plugin that is not there, of an op that needs none, of a program's op without its plugin.
call() {
    sed "s/o.op.sundial/$1/" first/try.lua > call.lua
    $orrery check call.lua "${small[@]}" --set 'plugins.path=["first/build/plugins"]' > out.txt 2>&1 &&
        fail "$1 was taken"
    said "call.lua:12: |$2" out.txt
}
call o.op.sundail 'no op "sundail"|did you mean "sundial"'
call o.op.gelu "gelu is a built-in op; write x:gelu("
call o.op.sundial_grad "the plugin op/sundial does not define it"
sed 's/o.op.sundial(h, { rate = 2 })/o.op.sundial(h, { rat = 2 })/' first/try.lua > call.lua
$orrery check call.lua "${small[@]}" --set 'plugins.path=["first/build/plugins"]' > out.txt 2>&1 && fail "rat was taken"
said 'sundial: unknown option "rat"' out.txt
$orrery check first/try.lua "${small[@]}" --set 'plugins.path=["first/build/plugins"]' --print program > try.ir ||
    fail "--print program"
$orrery check try.ir > out.txt 2>&1 && fail "a program was taken without the plugin of its op"
said "try.ir: |sundial" out.txt
$orrery check try.ir --set 'plugins.path=["first/build/plugins"]' | cmp - try.ir || fail "try.ir is printed otherwise"
$orrery check try.ir --set mesh.dp=2 > out.txt 2>&1 && fail "a configuration was taken for a program"
said "without a configuration" out.txt
echo "names: what is not there is named, and a program's op is found by its own"
