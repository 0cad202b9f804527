#!/usr/bin/env bash
# Messages of codes, with feedback: verified; a run resumes bit for bit, also the errors, and on another number of ranks
# without a jump.
source "$(dirname "$0")/lib.sh"
gpt=$source_root/scripts/gpt.lua
codes=(--set script.codec=int4 --set script.feedback=true --set script.floor=1 --set run.threads_per_rank=1)

sizes=(--set mesh.dp=2 --set data.path=text.txt --set data.tokens_per_sequence=32
    --set train.sequences_per_step=4 --set train.steps=4
    --set script.layers=2 --set script.embed=48 --set script.heads=3)
# Under sequence parallelism the gradient of wpe is summed over dp while tp splits it, which leaves its param whole.
sequence=(--set mesh.tp=2 --set script.sequence=true --set script.heads=4)
for zero in 0 3; do
    split=() && [ $zero = 0 ] || split=("${sequence[@]}")
    $orrery verify "$gpt" "${sizes[@]}" "${codes[@]}" "${split[@]}" --set script.zero=$zero > verified.log 2>&1 ||
        { cat verified.log; fail "verify fails a correct job with zero=$zero"; }
    grep -q "gradients are sent as int4 over dp: the tolerance is the codec's bound" verified.log ||
        { cat verified.log; fail "verify does not say what it judges by"; }
done
# Arrays with another number of blocks each, in one message.
for codec in top_k/10 top_k/64+int2; do
    $orrery verify "$gpt" "${sizes[@]}" --set script.embed=96 --set script.codec=$codec --set script.feedback=true \
        > verified.log 2>&1 || { cat verified.log; fail "$codec does not pass"; }
done
$orrery verify "$gpt" "${sizes[@]}" "${sequence[@]}" --set script.zero=2 --set script.codec=powersgd/4 \
    --set script.feedback=true > verified.log 2>&1 || { cat verified.log; fail "powersgd does not pass"; }
grep -q "gradients are sent as powersgd/4 over dp: the tolerance is the codec's bound" verified.log ||
    { cat verified.log; fail "powersgd is not used"; }
$orrery check "$gpt" "${sizes[@]}" --set script.codec=powersgd/4 | grep -q "powersgd/4 over dp keeps .*, .* a rank" ||
    fail "check does not list the bytes of factors"
$orrery verify "$gpt" "${sizes[@]}" --set script.zero=3 --set script.param_codec=int8 \
    > verified.log 2>&1 || { cat verified.log; fail "params as codes do not pass"; }
$orrery verify "$gpt" "${sizes[@]}" --set mesh.pp=2 --set mesh.tp=2 --set mesh.dp=1 \
    --set train.microbatches=2 --set script.heads=4 --set script.activation_codec=int8 > verified.log 2>&1 ||
    { cat verified.log; fail "activations as codes do not pass"; }
$orrery check "$gpt" "${sizes[@]}" "${codes[@]}" > check.log 2>&1 ||
    { cat check.log; fail "check"; }
grep -q "feedback of int4 over dp: .* arrays of errors, .* a rank" check.log ||
    { cat check.log; fail "check does not list the bytes of errors"; }

# Islands: with feedback a coarse codec brings diloco nearer to diloco without one (here by 2.2 to 1.0 nats). The errors
# resume bit for bit; with another number of islands their sum stays, without feedback they are refused or dropped.
islands=("$gpt" --set mesh.site=2 --set data.path=text.txt --set data.tokens_per_sequence=32 --set data.validation=0.1
    --set train.sequences_per_step=8 --set script.layers=2 --set script.embed=64 --set script.heads=4
    --set script.lr=2e-3 --set script.warmup=5 --set script.floor=1 --set script.method=diloco --set script.sync_every=5
    --set script.islands_resume=mean --set run.transport=threads --set run.threads_per_rank=1 --set run.timeout_s=20)
coarse=(--set script.islands_codec=top_k/64+int2)
owed=("${coarse[@]}" --set script.islands_feedback=true)
met() {  # met FOLDER STEPS SETTINGS...: trains, and gives the last loss of a round
    trained_in "$1" "${islands[@]}" --set train.steps="$2" "${@:3}"
    sed -nE 's/.*"round_loss":([^,}]+).*/\1/p' "$1/metrics.jsonl" | tail -1
}
met plain 60 > plain.txt && met coarse 60 "${coarse[@]}" > coarse.txt && met owed 60 "${owed[@]}" > owed.txt ||
    { cat plain.txt coarse.txt owed.txt; fail "diloco with and without feedback"; }
paste plain.txt coarse.txt owed.txt | tee three.txt | awk '{ if (NF != 3 || $3 - $1 > 0.7 * ($2 - $1)) exit 1 }' ||
    { cat three.txt; fail "feedback brings diloco no nearer"; }
for case in "script.islands_codec=top_k/64+int2" "script.islands_codec=sign mesh.tp=2" \
    "script.islands_codec=int4 mesh.dp=2 script.zero=1" "script.islands_codec=int4 mesh.dp=2 script.zero=3"; do
    arguments=(--set script.islands_feedback=true --set train.steps=3 --set script.sync_every=2)
    for setting in $case; do arguments+=(--set "$setting"); done
    $orrery verify "${islands[@]}" "${arguments[@]}" > verified.log 2>&1 ||
        { cat verified.log; fail "feedback of islands does not pass with $case"; }
done
$orrery check "${islands[@]}" "${owed[@]}" --set train.steps=5 > check.log 2>&1 ||
    { cat check.log; fail "check of islands with feedback"; }
grep -q "feedback of top_k/64+int2 over site: .* arrays of errors, .* a rank" check.log ||
    { cat check.log; fail "check does not list the bytes of the errors of islands"; }
met met 7 "${owed[@]}" > /dev/null || fail "the first part with islands"
cp -r met fewer && cp -r met forgot
met met 60 "${owed[@]}" > /dev/null || fail "the second part with islands"
losses owed > whole.txt
losses met > met.txt
cmp whole.txt met.txt || fail "another trajectory after resuming islands"
met fewer 12 "${owed[@]}" --set mesh.site=4 > /dev/null || fail "four islands do not go on with the errors of two"
grep -q "resumed from step 7" fewer.log || { cat fewer.log; fail "four islands did not resume"; }
$orrery run "${islands[@]}" "${coarse[@]}" --set train.steps=12 --set run.folder=forgot > lost.log 2>&1 &&
    fail "errors of islands are lost silently"
grep -q "it has tensors that the program does not have: wpe.weight.error.site" lost.log ||
    { cat lost.log; fail "what islands would lose is not told"; }
met forgot 12 "${coarse[@]}" --set 'checkpoint.drop=["*.error.site"]' > /dev/null ||
    fail "errors of islands are not dropped"

# A codec of a script's own, and one that is further off than it says.
own() {  # own BOUND [FACTOR of what is encoded]
    printf 'require("orrery").codec { name = "halves", bound = %s,\n' "$1"
    printf '  encode = function(x, add)\n    x = add("scale", { x }, { by = %s })\n' "${2:-1.0}"
    printf '    return { (add("cast", { x }, { dtype = "bf16" })) }\n  end,\n'
    printf '  decode = function(codes, shape, add) return (add("cast", codes, { dtype = "f32" })) end }\n'
    cat "$gpt"
}
own 1/256 > right.lua
$orrery verify right.lua "${sizes[@]}" --set script.codec=halves > own.log 2>&1 ||
    { cat own.log; fail "a codec in Lua does not pass"; }
grep -q "gradients are sent as halves over dp" own.log || { cat own.log; fail "the codec in Lua is not used"; }
# Islands send whole params as it encodes them only if it says that it is near.
for near in false true; do
    own 1/256 | sed "s/name = \"halves\",/& activations = $near,/" > near.lua
    exits $([ $near = true ] && echo 0 || echo 2) near $orrery check near.lua "${islands[@]:1}" --set train.steps=5 \
        --set script.method=local_sgd --set script.islands_codec=halves
    [ $near = true ] || grep -q "whole values over site cannot be sent as halves" near.err ||
        { cat near.err; fail "a codec that is not near is not named"; }
done
sed 's/return { (add("cast"/return { add.nothing, (add("cast"/' right.lua > wrong.lua
refused "codec halves, encode of f32[|wrong.lua:4: attempt to index" $orrery check wrong.lua "${sizes[@]}" \
    --set script.codec=halves
# The third returns -x, so that the encoding of an all_reduce's sum undoes that of its terms.
for wrong in "1e-9 1e-09" "1 1 -1.0"; do
    set -- $wrong
    own "$1" "${3:-1.0}" > wrong.lua
    $orrery verify wrong.lua "${sizes[@]}" --set script.codec=halves > own.log 2>&1 &&
        { cat own.log; fail "a codec that breaks its bound passes"; }
    grep -q "farther from what was encoded than codec halves allows (bound $2)" own.log ||
        { cat own.log; fail "the codec that breaks its bound is not named"; }
done

# The same for a plugin (tests/suites/wrong/codec.cpp); a name that no plugin has.
brought=("${sizes[@]}" --set "plugins.path=[\"$(dirname "$orrery")/tests/wrong_plugins\"]" --set script.codec=wrong)
$orrery verify "$gpt" "${brought[@]}" > own.log 2>&1 || { cat own.log; fail "a codec of a plugin does not pass"; }
grep -q "gradients are sent as wrong over dp" own.log || { cat own.log; fail "the plugin's codec is not used"; }
ORRERY_TEST_FAULT=bound $orrery verify "$gpt" "${brought[@]}" > own.log 2>&1 &&
    { cat own.log; fail "a plugin that breaks its bound passes"; }
grep -q "farther from what was encoded than codec wrong allows (bound 0.001)" own.log ||
    { cat own.log; fail "the plugin that breaks its bound is not named"; }
$orrery check "$gpt" "${brought[@]}" --set script.codec=wring > own.log 2>&1 &&
    { cat own.log; fail "a codec that there is not is accepted"; }
grep -q 'no codec "wring"' own.log && grep -q 'did you mean "wrong"' own.log ||
    { cat own.log; fail "the codecs of plugins are not listed"; }

# Steps that a loss scale skips leave the errors as they are: an infinite term would stay in them for good.
scale='{ loss_scale = { initial = 2^32, most = 2^32 } }'
sed "s/^script_options.train(program, optimizer, .*/program:train_with(optimizer, $scale)/" \
    "$gpt" > scaled.lua
grep -q 'initial = 2^32' scaled.lua || fail "gpt.lua has another line that trains"
$orrery run scaled.lua "${sizes[@]}" "${codes[@]}" --set train.precision=f16 --set train.steps=24 \
    --set run.folder=scaled > scaled.log 2>&1 || { cat scaled.log; fail "f16 with a loss scale"; }
grep -q "of 24 steps skipped" scaled.log || { cat scaled.log; fail "no step was skipped"; }

run_tiny whole 20 "${codes[@]}" > whole.log 2>&1 || { cat whole.log; fail "the uninterrupted run"; }
run_tiny parts 10 "${codes[@]}" > first.log 2>&1 || { cat first.log; fail "the first part"; }
cp -r parts four && cp -r parts other && cp -r parts lost
run_tiny parts 20 "${codes[@]}" > second.log 2>&1 || { cat second.log; fail "the second part"; }
losses whole > whole.txt
losses parts > parts.txt
cmp whole.txt parts.txt || fail "another trajectory after resuming"

# On four ranks sums differ, but losses stay within the range of the ten steps before and half of it more.
run_tiny four 20 "${codes[@]}" --set mesh.dp=4 > four.log 2>&1 ||
    { cat four.log; fail "resumed on four ranks"; }
grep -q "resumed from step 10" four.log || { cat four.log; fail "four ranks did not resume"; }
losses four | awk '$1 <= 10 { if (!n++ || $2 < low) low = $2; if (n == 1 || $2 > high) high = $2 }
    $1 > 10 && ($2 > high + (high - low) / 2) { print "step " $1 ": " $2 ", before " low " to " high; bad = 1 }
    END { exit bad }' || fail "the loss jumps on four ranks"
run_tiny other 20 --set script.codec=int8 --set script.feedback=true --set script.floor=1 > other.log 2>&1 ||
    { cat other.log; fail "resumed with another codec"; }
grep -q "resumed from step 10" other.log || { cat other.log; fail "another codec did not resume"; }
run_tiny lost 20 --set script.codec=int4 --set script.floor=1 > lost.log 2>&1 && fail "errors are lost silently"
grep -q "it has tensors that the program does not have: wpe.weight.error.dp" lost.log ||
    { cat lost.log; fail "the run without feedback does not say what would be lost"; }
run_tiny lost 11 --set script.floor=1 --set mesh.dp=1 --set 'checkpoint.drop=["*.error.dp"]' > lost.log 2>&1 ||
    { cat lost.log; fail "one rank does not go on without the errors"; }
grep -q "dropped, as checkpoint.drop says: wpe.weight.error.dp" lost.log && grep -q "resumed from step 10" lost.log ||
    { cat lost.log; fail "what was dropped is not told"; }

# Codes between the copies of hybrid sharding alone: errors are of a rank's own part, and resume with other ranks.
hybrid=(--set script.zero=1 --set script.codec=rep=int4 --set script.feedback=true --set script.floor=1
    --set run.threads_per_rank=1)
run_tiny hybrid 20 "${hybrid[@]}" --set mesh.rep=2 > hybrid.log 2>&1 || { cat hybrid.log; fail "codes over rep"; }
run_tiny hybrid_parts 10 "${hybrid[@]}" --set mesh.rep=2 > hybrid.log 2>&1 || { cat hybrid.log; fail "first part"; }
cp -r hybrid_parts hybrid_more
run_tiny hybrid_parts 20 "${hybrid[@]}" --set mesh.rep=2 > hybrid.log 2>&1 || { cat hybrid.log; fail "second part"; }
losses hybrid > whole.txt
losses hybrid_parts > parts.txt
cmp whole.txt parts.txt || fail "another trajectory after resuming with codes over rep"
run_tiny hybrid_more 12 "${hybrid[@]}" --set mesh.dp=1 --set mesh.rep=4 > hybrid.log 2>&1 ||
    { cat hybrid.log; fail "four copies"; }
grep -q "resumed from step 10" hybrid.log || { cat hybrid.log; fail "four copies did not resume"; }

# Factors, which powersgd keeps from step to step, are saved; another number of ranks of dp or tp goes on with them.
factors=(--set script.codec=powersgd/4 --set script.feedback=true --set script.floor=1 --set script.heads=4
    --set run.threads_per_rank=1)
run_tiny low_whole 20 "${factors[@]}" > low.log 2>&1 || { cat low.log; fail "powersgd"; }
run_tiny low_parts 10 "${factors[@]}" > low.log 2>&1 || { cat low.log; fail "powersgd, the first part"; }
cp -r low_parts low_tp
run_tiny low_parts 20 "${factors[@]}" > low.log 2>&1 || { cat low.log; fail "powersgd, the second part"; }
losses low_whole > whole.txt
losses low_parts > parts.txt
cmp whole.txt parts.txt || fail "another trajectory after resuming with factors"
run_tiny low_tp 12 "${factors[@]}" --set mesh.dp=4 --set mesh.tp=2 --set script.sequence=true > low.log 2>&1 ||
    { cat low.log; fail "factors on four times two ranks"; }
grep -q "resumed from step 10" low.log || { cat low.log; fail "four times two ranks did not resume"; }
run_tiny low_tp 13 "${factors[@]}" --set script.codec=powersgd/2 > low.log 2>&1 ||
    { cat low.log; fail "factors of another rank"; }
grep -q "resumed from step 12" low.log || { cat low.log; fail "another rank of factors did not resume"; }
echo "1 passed, 0 failed"
