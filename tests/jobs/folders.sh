#!/usr/bin/env bash
# A run's folder: refused where it cannot be written, kept to one job, seen by every rank; and what a diverged state, a
# damaged checkpoint or a full disk does to what is in it.
source "$(dirname "$0")/lib.sh"
steps=12

# refuses NAME CODE WORDS COMMAND...: the exit code, and every word (separated by |) in the message.
refuses() {
    local name=$1 expected=$2 words=$3 code word
    shift 3
    "$@" > "$name.log" 2>&1
    code=$?
    [ $code -eq "$expected" ] || { cat "$name.log"; fail "$name: exit code $code, expected $expected"; }
    word=$(missing_word "$words" "$(< "$name.log")")
    [ -z "$word" ] || { cat "$name.log"; fail "$name: no \"$word\""; }
    ! grep -q "internal error" "$name.log" || { cat "$name.log"; fail "$name: called an internal error"; }
    echo "$name: $(grep -m1 'orrery: ' "$name.log" | cut -c1-150)"
}

refuses "folder below a file" 2 'run.folder|text.txt/run|Not a directory' run_tiny text.txt/run $steps
refuses "folder of one rank" 2 'run.folder|text.txt/run|Not a directory' run_tiny text.txt/run $steps --set mesh.dp=1

mkdir linked && ln -s "$work/text.txt" linked/.lock
refuses "a lock that is a link" 2 'run.folder|cannot write linked/.lock|it is a symbolic link|remove the link' \
    run_tiny linked $steps

mkdir -p piped && mkfifo piped/metrics.jsonl
refuses "metrics into a pipe" 1 'piped/metrics.jsonl|named pipe' timeout 20 $orrery run "$source_root/scripts/gpt.lua" \
    --set run.folder=piped --set data.path=text.txt --set data.tokens_per_sequence=32 --set train.steps=2 \
    --set train.sequences_per_step=4 --set script.layers=1 --set script.embed=32 --set script.heads=2

# A run that only measures leaves no checkpoint.
run_tiny measured $steps --set mesh.dp=1 --set checkpoint.every_steps=0 --set checkpoint.final=false \
    > measured.log 2>&1 || { cat measured.log; fail "a run without checkpoints"; }
! ls measured/checkpoints 2> /dev/null | grep -q step && ! grep -q "checkpoint of step" measured.log ||
    fail "checkpoint.final = false left one"
# One may sample from an earlier one, but a script does not that has just trained beyond it.
run_tiny partly $steps --set mesh.dp=1 --set checkpoint.every_steps=5 --set checkpoint.final=false > partly.log 2>&1 ||
    { cat partly.log; fail "a run with some checkpoints"; }
"$orrery" sample partly --set sample.tokens=3 > sample.log 2>&1 || { cat sample.log; fail "a sample of step 10"; }
cp -r "$source_root/scripts" scripts && sed -i 's/^\( *\)\(run:train(.*\)$/\1\2\n\1run:sample {}/' scripts/gpt.lua
grep -q "run:sample" scripts/gpt.lua || fail "the script has no line run:train"
cp -r partly 'partly "quoted\too'
"$orrery" sample 'partly "quoted\too' --set sample.tokens=3 > sample.log 2>&1 ||
    { cat sample.log; fail "a sample of a folder with quotes"; }
refuses "sample of the end" 2 'checkpoint.final = false saves no checkpoint after the last step' \
    "$orrery" check scripts/gpt.lua --config partly/config.toml

# One job at a time, and one that has ended is no hindrance.
tiny_exec=exec run_tiny shared 100000 > holder.log 2>&1 &
holder=$!
wait_for steps_done shared 3 || { cat holder.log; fail "the job that holds the folder"; }
cp shared/metrics.jsonl before.jsonl
refuses "second job" 2 "shared is in use|pid |run.folder" run_tiny shared $steps
refuses "second job, afresh" 2 "shared is in use|pid " run_tiny shared $steps --fresh
[ ! -e shared.1 ] || fail "--fresh moved the folder of a running job"
head -c "$(stat -c %s before.jsonl)" shared/metrics.jsonl | cmp - before.jsonl || fail "a second job cut the metrics"
kill -TERM $holder
wait $holder
[ $? -eq 75 ] || { cat holder.log; fail "the holder did not stop well"; }
done_steps=$(losses shared | wc -l)
run_tiny shared $((done_steps + 5)) > after.log 2>&1 || { cat after.log; fail "a job after the holder"; }
grep -q "resumed from step $done_steps" after.log || { cat after.log; fail "it did not resume the holder's work"; }
[ "$(grep -c "resumed with changed settings" after.log)" -eq 1 ] &&
    grep -q "changed settings: train.steps 100000 -> $((done_steps + 5))\$" after.log ||
    { cat after.log; fail "no word of other settings"; }
run_tiny shared $steps --fresh > fresh.log 2>&1 || { cat fresh.log; fail "--fresh"; }
[ -d shared.1 ] && [ "$(losses shared | wc -l)" -eq $steps ] || fail "--fresh did not start over"

# A run's folder stands for its script: the script that is in it may be run.
run_tiny itself $steps > itself.log 2>&1 || { cat itself.log; fail "itself"; }
"$orrery" run itself/script.lua --config itself/config.toml --set train.steps=14 > again.log 2>&1 ||
    { cat again.log; fail "a run of FOLDER/script.lua"; }
cmp itself/script.lua "$source_root/scripts/gpt.lua" || fail "the script in the folder was lost"

# Two hosts with a folder each are told so at the start, not that a checkpoint is damaged.
mkdir -p host0 host1
cp text.txt host0 && cp text.txt host1
port=$(free_port)
(cd host0 && as_rank 0 2 "$port" "$orrery" run "$source_root/scripts/gpt.lua" --set run.folder=mine --set mesh.dp=2 \
    --set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=3 \
    --set script.layers=1 --set script.embed=48 --set script.heads=3) > host0.log 2>&1 &
first=$!
refuses "folder of each host" 2 'rank 1|does not see|same folder' env -C host1 bash -c "$(declare -f as_rank)
    as_rank 1 2 $port $orrery run $source_root/scripts/gpt.lua --set run.folder=mine --set mesh.dp=2 \
    --set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps=3 \
    --set script.layers=1 --set script.embed=48 --set script.heads=3"
wait $first
[ $? -eq 2 ] || { cat host0.log; fail "rank 0 did not refuse the folder of each host"; }

# A state that has diverged is no checkpoint, even when the loss before the update was fine.
refuses "diverged" 1 'step 1|not saved|no checkpoint before' \
    run_tiny diverged 1 --set script.lr=1e38 --set script.warmup=0 --set data.validation=0
refuses "diverged, by held-out data" 1 'step 1|held-out|not saved' \
    run_tiny diverged 1 --set script.lr=1e38 --set script.warmup=0
[ -z "$(ls diverged/checkpoints 2> /dev/null | grep '^step-[0-9]*$')" ] || fail "a diverged state was committed"

# The newest checkpoint is damaged: the run goes on from the older one, and no line of the metrics stands twice.
run_tiny damaged 30 > damaged.log 2>&1 || { cat damaged.log; fail "damaged: the first run"; }
losses damaged > whole.txt
for file in damaged/checkpoints/step-00000030/rank-*; do
    printf 'x' | dd of="$file" bs=1 seek=5000 conv=notrunc 2> /dev/null
done
run_tiny damaged 30 > damaged.resumed.log 2>&1 || { cat damaged.resumed.log; fail "damaged: the resumed run"; }
! grep -q "changed settings" damaged.resumed.log || fail "the same settings are called others"
grep -q "damaged, an older checkpoint is used" damaged.resumed.log || { cat damaged.resumed.log; fail "no damage"; }
losses damaged > resumed.txt
cmp whole.txt resumed.txt || { diff whole.txt resumed.txt | head -5; fail "damaged: other lines in metrics.jsonl"; }

# A resume that is refused leaves the folder as it was, which evaluates to what it did.
kept() {
    (cd damaged && find . -type f -not -name run.json -not -name '.*lock' -not -name 'generation-*' \
        -not -path './logs/*' -exec sha256sum {} + | sort -k 2)
}
kept > before.txt
exits 0 evaluated "$orrery" evaluate damaged text.txt
refuses "another model" 2 'is from another program' run_tiny damaged 40 --set script.layers=1
refuses "another seed" 2 'seed' run_tiny damaged 40 --set run.seed=6
kept > after.txt
cmp before.txt after.txt || { diff before.txt after.txt; fail "a refused resume has changed the folder"; }
# Fewer layers find all of their params in the checkpoint, and are another model.
refuses "an evaluation of another model" 2 'params that this program lacks|h.1.' \
    "$orrery" evaluate damaged text.txt --set script.layers=1

# What is a pipe in the place of a file is told, not waited for.
rm damaged/run.json && mkfifo damaged/run.json
refuses "a pipe for run.json" 1 'damaged/run.json is a named pipe, expected a file' timeout 20 "$orrery" run \
    "$source_root/scripts/gpt.lua" --config damaged/config.toml
rm damaged/run.json

# Metrics that cannot be written are an error, not a gap.
run_tiny full $steps > full.log 2>&1 || { cat full.log; fail "full: the first run"; }
rm full/metrics.jsonl && ln -s /dev/full full/metrics.jsonl
refuses "full disk" 1 'metrics.jsonl|No space left' run_tiny full 20
echo "1 passed, 0 failed"
