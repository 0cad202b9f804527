#!/usr/bin/env bash
# TensorBoard's event files hold each step of metrics.jsonl once, equal in f32: after kills at several moments, one
# inside of a record, after going on from an older checkpoint, and after a start with nothing left to do.
source "$(dirname "$0")/lib.sh"
events=$source_root/tests/jobs/events.py
train() { run_tiny run "$@" --set metrics.prometheus=run.prom; }
newest() { ls run/checkpoints | sort -V | tail -1; }

before=0
for done in 3 25 47; do  # before the first checkpoint, and behind some; the end is out of reach
    tiny_exec=exec train 1000000 > run.log 2>&1 &
    launcher=$!
    # More than the last start left: else this one's ranks may not be there yet.
    wait_for steps_done run $((before + done)) || { cat run.log; fail "no step $done"; }
    kill -9 $(ranks_of $launcher) 2> /dev/null
    before=$(grep -c '"loss"' run/metrics.jsonl)
    wait $launcher && { cat run.log; fail "the run was over before it was killed"; }
    python3 "$events" --killed run > compared.txt || { head -20 compared.txt; fail "killed behind step $done"; }
done
[ "$(ls run/tensorboard | wc -l)" -eq 3 ] || { ls run/tensorboard; fail "not one file a start"; }

# As if the kill had come inside of the next record, and inside of the next line.
last=run/tensorboard/$(ls run/tensorboard | tail -1)
head -c 20 "$last" > cut && cat cut >> "$last"
printf '{"step":1000000,"lo' >> run/metrics.jsonl
steps=$(($(newest | tr -cd 0-9 | sed 's/^0*//') + 65))
train $steps > run.log 2>&1 || { cat run.log; fail "the run that goes on"; }
python3 "$events" run > compared.txt || { head -20 compared.txt; fail "gone on behind a cut record"; }
[ "$(losses run | wc -l)" -eq $steps ] || fail "metrics.jsonl has $(losses run | wc -l) of $steps steps"
grep -q "^orrery_step{run=\"run\",host=\"[^\"]*\",rank=\"0\"} $steps\$" run.prom ||
    { cat run.prom; fail "the file for Prometheus"; }

# As if a kill had come between a record and its line: that is passed over until the next start, and no more is.
cp run/metrics.jsonl lines
sed -i '$d' run/metrics.jsonl
python3 "$events" --killed run > compared.txt || { head -20 compared.txt; fail "killed before a line"; }
python3 "$events" run > compared.txt && fail "a record without a line is not seen"
head -n $((steps - 1)) lines > run/metrics.jsonl
python3 "$events" --killed run > compared.txt && fail "records without lines are not seen"
cp lines run/metrics.jsonl

# From an older checkpoint.
rm -r "run/checkpoints/$(newest)"
train $steps > run.log 2>&1 || { cat run.log; fail "the run from an older checkpoint"; }
grep -q "resumed from step" run.log || { cat run.log; fail "it did not go on"; }
python3 "$events" run > compared.txt || { head -20 compared.txt; fail "gone on from an older checkpoint"; }
# Nothing left to do: the evaluation that is told again is in both once.
train $steps > run.log 2>&1 || { cat run.log; fail "the start at the end"; }
grep -q "evaluation after step $steps" run.log || { cat run.log; fail "the end is not evaluated"; }
[ "$(grep -c "\"step\":$steps,\"eval_loss\"" run/metrics.jsonl)" -eq 1 ] || fail "the end is evaluated twice"
python3 "$events" run > compared.txt || { head -20 compared.txt; fail "a start at the end"; }
cat compared.txt

# A reader that finds nothing wrong would be no test.
sed -i 3d run/metrics.jsonl
python3 "$events" run > compared.txt && fail "a line that is missing is not seen"
run_tiny none 5 --set metrics.tensorboard=false > run.log 2>&1 || { cat run.log; fail "without event files"; }
exits 2 unwritable run_tiny unwritable 5 --set metrics.prometheus=nowhere/run.prom
grep -q "metrics.prometheus nowhere/run.prom: there is no folder nowhere" unwritable.err ||
    { cat unwritable.err; fail "why a file for Prometheus cannot be written"; }
[ ! -e unwritable ] || fail "a run that cannot begin made its folder"
[ ! -e none/tensorboard ] || fail "metrics.tensorboard = false leaves event files"
echo "1 passed, 0 failed"
