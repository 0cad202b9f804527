#!/usr/bin/env bash
# Data that is no text: a regression with noise and a classifier of images train, evaluate and verify from arrays under
# dp, tp, pp and ZeRO, and report in their own units; labels of -1 pass, others that the model has no logit for are
# refused with their sample.
source "$(dirname "$0")/lib.sh"

# npy FILE TYPE SHAPE: a NumPy file of the numbers on stdin, TYPE f4 or i4.
npy() {
    awk -v type="$2" -v shape="$3" '
        function emit(n, i) { for (i = 0; i < 4; ++i) { printf "\\0%o", n % 256; n = int(n / 256) } }
        function bits(x, sign, power) {                      # of the nearest float towards zero
            if (x == 0) return 0
            if (x < 0) { sign = 2147483648; x = -x }
            for (power = 127; x >= 2; ++power) x /= 2
            for (; x < 1; --power) x *= 2
            return sign + power * 8388608 + int((x - 1) * 8388608)
        }
        BEGIN {
            header = "{\"descr\": \"<" type "\", \"fortran_order\": False, \"shape\": (" shape "), }"
            gsub("\"", "\047", header)
            printf "\\0223NUMPY\\01\\00\\0%o\\0%o%s\\n", (length(header) + 1) % 256, (length(header) + 1) / 256, header
        }
        { emit(type == "f4" ? bits($1) : $1 < 0 ? 4294967296 + $1 : $1) }' > "$1.text"
    printf '%b' "$(cat "$1.text")" > "$1"
    rm "$1.text"
}

# 640 points: y from x; 640 images of 8 x 8 in 4 classes, where the brightest quarter is; every 9th has no label.
mkdir points digits
awk 'BEGIN { for (i = 0; i < 640 * 8; ++i) print sin(i * 1.37) }' > x.txt
awk '{ sum += (NR % 3 - 1) * $1 } NR % 8 == 0 { print sum; sum = 0 }' x.txt | npy points/y.npy f4 "640, 1"
npy points/x.npy f4 "640, 8" < x.txt
awk 'BEGIN { for (i = 0; i < 640; ++i) for (r = 0; r < 8; ++r) for (c = 0; c < 8; ++c)
    print (int(r / 4) * 2 + int(c / 4) == i * 7 % 4 ? 1 : 0) + sin(i * 64 + r * 8 + c) / 2 }' |
    npy digits/images.npy f4 "640, 8, 8"
labels() { awk -v last="$1" 'BEGIN { for (i = 0; i < 640; ++i) print i == 639 ? last : i % 9 == 0 ? -1 : i * 7 % 4 }'; }
labels 1 | npy digits/labels.npy i4 "640,"

cat > regression.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { zero = { 0, "stage of ZeRO" }, own = { false, "an optimizer that declares nothing" },
  noise = { 0.05, "std of what is added to the inputs" } }
local data = o.data.arrays { path = "points" }
local program = o.trace("regression", data.signature, function(batch)
  local noise = o.random { shape = { { "batch", batch.x.shape[1] }, 8 }, kind = "normal" }
  local h = nn.linear(batch.x + noise * opt.noise, "in", { "embed", 32 })
  for i = 0, 3 do h = h + nn.scope("layers." .. i, nn.mlp, h, { mlp = 64 }) end
  return (nn.linear(h, "out", { "outputs", 1 }) - batch.y):square():sum(), o.constant(batch.x.shape[1])
end)
LUA
cat > classifier.lua << 'LUA'
local o, nn = require "orrery", require "orrery.nn"
local opt = o.options { zero = { 0, "stage of ZeRO" }, own = { false, "an optimizer that declares nothing" } }
local data = o.data.arrays { path = "digits", arrays = { "images", "labels" } }
local program = o.trace("classifier", data.signature, function(batch)
  local x = batch.images:reshape { "batch", { "rows", 4 }, { "height", 2 }, { "columns", 4 }, { "width", 2 } }
  x = x:transpose { 1, 2, 4, 3, 5 }:reshape { "batch", { "seq", 16 }, { "pixels", 4 } }    -- 16 patches
  x = nn.linear(x, "patch", { "embed", 32 }) + nn.table("position", { "seq", 16 }, { "embed", 32 }, 0.3)
  for i = 0, 3 do
    nn.scope("layers." .. i, function()
      x = x + nn.scope("attn", nn.attention, nn.layernorm(x, "ln_1"), { heads = 4, causal = false })
      x = x + nn.scope("mlp", nn.mlp, nn.layernorm(x, "ln_2"), { mlp = 64 })
    end)
  end
  local mean = x:sum { dims = { 2 } }:scale(1 / 16)
  return nn.linear(mean, "head", { "classes", 4 }):cross_entropy(batch.labels)
end)
LUA
for script in regression classifier; do
    cat >> $script.lua << 'LUA'
program:train_with(not opt.own and o.optim.adamw { lr = 5e-3, decay = 0 } or function(update)
  for p in update:params() do update:set(p, p - p:grad() * (0.01 / update:count())) end
end)
program:parallel {
  o.strategy.pipeline { axis = "pp" },
  o.strategy.tensor { axis = "tp" },
  o.strategy.data { axis = "dp", zero = opt.zero },
}
local run = program:compile()
run:train(data)
LUA
done

settings=(--set train.sequences_per_step=16 --set train.steps=24 --set train.evaluate_every=12
    --set train.evaluate_batches=2 --set train.microbatches=2 --set data.validation=0.1 --set run.timeout_s=20)
trained() {  # trained NAME SCRIPT [more settings]
    local name=$1
    trained_in "$name" "$2.lua" "${settings[@]}" "${@:3}"
    [ "$(grep -c eval_loss "$name/metrics.jsonl")" -ge 2 ] || { tail -5 "$name.log"; fail "$name: no evaluations"; }
    losses "$name" | cut -d' ' -f2 > "$name.losses"
}
for script in regression classifier; do
    trained $script $script
    awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(NR == 24 && last < first * 0.7) }' $script.losses ||
        { cat $script.losses; fail "$script: it learns nothing"; }
    while read -r name sets; do
        # shellcheck disable=SC2086
        set -- $sets
        trained $script.$name $script "$@"
        paste $script.losses $script.$name.losses | awk '{ d = $1 - $2; if (d * d > 1e-6 * (1 + $1 * $1)) exit 1 }' ||
            { paste $script.losses $script.$name.losses; fail "$script: $name does not train as one rank does"; }
        $orrery verify $script.lua "${settings[@]}" "$@" > verify.log 2>&1 ||
            { tail -20 verify.log; fail "$script: verify finds a fault under $name"; }
    done << 'END'
dp --set mesh.dp=2
tp --set mesh.tp=2
pp --set mesh.pp=2
zero --set mesh.dp=2 --set script.zero=3
END
done

# The noise is there, and is other numbers in each step; above, every mesh drew the same.
trained calm regression --set script.noise=0
paste regression.losses calm.losses | awk '$1 == $2 { ++same } END { exit same > 1 }' ||
    { paste regression.losses calm.losses; fail "o.random changes nothing"; }

# What is reported: samples/s, each model's own unit, blanks for what an optimizer does not declare.
python3 -B "$source_root/tests/jobs/events.py" regression classifier || fail "TensorBoard has other numbers"
for script in regression classifier; do
    trained own.$script $script --set script.own=true
    $orrery check $script.lua "${settings[@]}" > check.$script 2>&1 || { cat check.$script; fail "check $script"; }
    grep -q "16 samples and .* TFLOP a step" check.$script || { cat check.$script; fail "check $script"; }
    head -1 $script/metrics.jsonl | grep -q '"grad_norm":[0-9].*"lr":0.00[45][0-9]*,"samples/s":[0-9]' ||
        { head -1 $script/metrics.jsonl; fail "$script: metrics.jsonl"; }
    head -1 own.$script/metrics.jsonl | grep -q '"loss":[0-9.]*,"samples/s":[0-9]' ||
        { head -1 own.$script/metrics.jsonl; fail "$script: metrics.jsonl without norm and rate"; }
    python3 -B "$source_root/tests/jobs/events.py" own.$script || fail "$script: TensorBoard without norm and rate"
    for log in $script.log own.$script.log; do
        grep -Eq "^ +step +loss +grad_norm +lr samples/s " $log || { cat $log; fail "$log: the heads of columns"; }
    done
    grep -Eq "^ +24 +[0-9.]+ {20,}[0-9]+ " own.$script.log || { cat own.$script.log; fail "$script: no blanks"; }
    ! grep -q 'tok/s\|"tokens"' $script/metrics.jsonl $script.log check.$script || fail "$script has no tokens"
done
for script in regression classifier; do
    grep -q "evaluation after step 24: loss [0-9.]*, a mean over held-out data of count" $script.log &&
        ! grep -q nats $script.log || { grep evaluation $script.log; fail "$script: the unit of its evaluations"; }
done

# `scale` compares samples/s where there are no tokens.
$orrery scale regression.lua --ranks 1,2 --steps 8 --set train.sequences_per_step=16 --target 0.001 -o scale.svg \
    > scale.txt 2> scale.log || { cat scale.txt scale.log; fail "scale of a regression"; }
grep -q "ranks sequences  samples/s" scale.txt && grep -q "Samples a second and rank" scale.svg &&
    ! grep -q token scale.txt scale.svg || { cat scale.txt; fail "scale: not in samples"; }
$orrery scale classifier.lua --ranks 2,4 --set train.sequences_per_step=16 --set train.steps=8 --target 0.001 \
    --simulate --cluster "$source_root/configs/clusters/h100.toml" > scale.txt 2> scale.log ||
    { cat scale.txt scale.log; fail "a simulated scale of a classifier"; }
grep -q "ranks sequences  samples/s" scale.txt || { cat scale.txt; fail "scale: not in samples"; }

# refused WORDS COMMAND...: WORDS are separated by |
refused() {
    local words=$1 missing
    shift
    "$@" > refused.log 2>&1 && { cat refused.log; fail "not refused: $*"; }
    missing=$(missing_word "$words" "$(cat refused.log)")
    [ -z "$missing" ] || { cat refused.log; fail "no \"$missing\": $*"; }
}
cp -r digits good && labels 4 | npy digits/labels.npy i4 "640,"
refused 'digits|sample 639 has the id 4 in "labels"|ids 0 to 3, and ignores -1' \
    $orrery run classifier.lua "${settings[@]}" --set data.validation=0 --set train.steps=40 --set run.folder=beyond
# Split logits are a loss of several ops: the ids are those of the model as it was recorded.
sed 's/"classes", 4/"vocab", 4/' classifier.lua > split.lua
refused 'sample 639 has the id 4 in "labels"|ids 0 to 3, and ignores -1' \
    $orrery run split.lua "${settings[@]}" --set data.validation=0 --set train.steps=40 --set mesh.tp=2 \
    --set run.folder=split
rm -r digits && mv good digits
signature='{ images = o.array("f32", { { "batch", 16 }, 8, 8 }), labels = o.array("i32", { { "batch", 16 } }) }'
sed "s/, \"labels\" }/ }/; s/data.signature/$signature/" classifier.lua > other.lua
refused 'no data for the input "labels" i32[16]|"images" f32[batch,images_1 8,images_2 8]|other.lua:4' \
    $orrery check other.lua "${settings[@]}"
sed "s/data.signature/$signature/; s/{ \"batch\", 16 }, 8, 8/{ \"batch\", 16 }, 4, 16/" classifier.lua > other.lua
refused 'input "images" is f32[16,4,16]|"images" f32[batch,images_1 8,images_2 8]|other.lua:4' \
    $orrery check other.lua "${settings[@]}"
sed 's/path = "points"/path = "digits", arrays = { "pixels" }/' regression.lua > other.lua
refused 'other.lua:4|has no array "pixels"|images f32[640,8,8]' $orrery check other.lua "${settings[@]}"
head -c 2000 points/y.npy > cut.npy
sed 's/path = "points"/path = "cut.npy"/' regression.lua > other.lua
refused 'cut.npy cannot be read|its header says f32[640,1], 2560 bytes' $orrery check other.lua "${settings[@]}"
echo "1 passed, 0 failed"
