#!/usr/bin/env bash
# orrery check --dump, --print and FILE.ir: every pass leaves a program that reads back to the same text; what cannot
# be is refused with the reason.
source "$(dirname "$0")/lib.sh"

script=$source_root/scripts/gpt.lua
small="--set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=3
       --set script.layers=2 --set script.embed=48 --set script.heads=3"
# refused WORD ARGUMENTS...: exit code 2 and the word in the message.
refused() {
    local word=$1
    shift
    $orrery check "$@" > /dev/null 2> message.txt
    [ $? -eq 2 ] || fail "check $* did not end with code 2"
    grep -qF -- "$word" message.txt || { cat message.txt; fail "no \"$word\" for check $*"; }
}

of="$small --set mesh.pp=2 --set mesh.dp=2 --set train.precision=f16 --set train.microbatches=2"
$orrery check "$script" $of --dump pipeline > summary.txt || fail "check --dump"
grep -q "^checked: the plan is complete" summary.txt || fail "--dump leaves out the summary"
$orrery check "$script" $small --set mesh.dp=2 --set train.ramp_start=2 --set train.ramp_increment=2 \
    --set train.ramp_samples=20 --dump ramp > /dev/null || fail "check --dump of a ramp"
for name in record set_precision add_loss_scale differentiate split_batch add_update annotate assign_stages recompute \
    propagate join_axes bucket_collectives fuse; do
    ls pipeline/gpt/??-$name.ir > /dev/null || fail "no program behind $name"
done
$orrery check "$script" $small --set mesh.dp=2 --set train.precision=fp8 --set script.codec=bf16 --dump narrow \
    > /dev/null || fail "check --dump of fp8"
for name in encode_edges quantize_products; do
    ls narrow/gpt/??-$name.ir > /dev/null || fail "no program behind $name"
done
[ -e pipeline/gpt.eval/class-1.plan ] || fail "no plan of the evaluation"
[ -e ramp/gpt~2/class-0.plan ] || fail "no plan of a smaller batch"
count=0
while read -r file; do
    $orrery check "$file" > again.ir || fail "$file is refused"
    cmp "$file" again.ir || fail "$file is printed otherwise"
    count=$((count + 1))
done < <(find pipeline ramp narrow -name '*.ir')
[ "$count" -gt 60 ] || fail "only $count programs"

$orrery check "$script" $of --print program > program.ir || fail "--print program"
cmp program.ir pipeline/gpt/??-fuse.ir || fail "--print program is not the last one"
$orrery check "$script" $of --print plan > plan.txt || fail "--print plan"
cmp plan.txt <(cat pipeline/gpt/class-0.plan && tail -n +2 pipeline/gpt/class-1.plan) ||
    fail "--print plan is not all classes"
$orrery check "$script" $of --print plan --rank 3 | cmp - pipeline/gpt/class-1.plan || fail "--rank 3 is of class 1"

refused "is not an empty folder" "$script" $of --dump pipeline
refused "ranks are 0 to 3" "$script" $of --print plan --rank 4
refused "only supported with --print plan" "$script" $of --print program --rank 0
refused "without a configuration" pipeline/gpt/01-record.ir --set mesh.dp=2
sed 's/ matmul / matmull /' program.ir > wrong.ir
refused "wrong.ir: program gpt: op" wrong.ir
sed 's/ f32\[/ f33[/' program.ir > wrong.ir
refused "expected a type such as f32[8]" wrong.ir
for lines in 1 7 60 $(($(wc -l < program.ir) - 1)); do
    head -n "$lines" program.ir > wrong.ir
    refused 'the last line is not "end"' wrong.ir
done
sed '0,/dp:R/s//dp:S(9)/' program.ir > wrong.ir
refused "a dim below" wrong.ir
head -c 100000 /dev/urandom > wrong.ir
refused "wrong.ir" wrong.ir
mkfifo pipe.ir
refused "pipe.ir" pipe.ir

# Whatever a script calls its program stays inside the folder, and apart from the others.
cat > named.lua << 'LUA'
local o = require "orrery"
local data = o.data.text {}
local model = require "orrery.models.gpt" { layers = 1, embed = 16, heads = 2, mlp = 16, vocab = data.vocab, seq = 32 }
local name = o.options { name = { "gpt", "of the program" } }.name
local program = o.trace(name, data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
program:train_with(o.optim.adamw { lr = 1e-3 })
program:parallel { o.strategy.data { axis = "dp" } }
program:compile()
LUA
mkdir -p deep
for name in .. . a/b a_b '' 'x y'; do
    rm -rf deep/named
    $orrery check named.lua --set data.path=text.txt --set data.tokens_per_sequence=32 \
        --set train.sequences_per_step=4 --set script.name="\"$name\"" --dump deep/named > /dev/null ||
        fail "a program called \"$name\""
    [ "$(ls deep)" = named ] && [ -z "$(find deep/named -maxdepth 1 -type f)" ] ||
        { find deep; fail "$name leaves its folder"; }
done
