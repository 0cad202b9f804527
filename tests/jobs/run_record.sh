#!/usr/bin/env bash
# run.json says what was started and why it ended; lua/ keeps every file that `require` has read, and runs again.
source "$(dirname "$0")/lib.sh"
mkdir -p project/parts
cat > project/train.lua << 'LUA'
local o = require "orrery"
local part = require "parts.model"
local data = o.data.text {}
local model = part(data)
local program = o.trace("gpt", data.signature, function(batch) return model:loss(batch.tokens, batch.targets) end)
program:train_with(o.optim.sgd { lr = o.options { lr = { 1e-2, "learning rate" } }.lr })
program:parallel { o.strategy.data { axis = "dp" } }
program:compile():train(data)
LUA
cat > project/parts/model.lua << 'LUA'
local gpt = require "orrery.models.gpt"
return function(data) return gpt { layers = 1, embed = 16, heads = 2, mlp = 16, vocab = data.vocab, seq = 16 } end
LUA
settings=(--set data.path="$PWD/text.txt" --set data.tokens_per_sequence=16 --set train.sequences_per_step=4
    --set mesh.dp=2 --set run.timeout_s=20)
train() { ${tiny_exec:-} $orrery run project/train.lua "${settings[@]}" "$@"; }
# is EXPRESSION: of run.json, as r, in Python.
is() {
    python3 -c "import json, sys; r = json.load(open('run/run.json')); sys.exit(not ($1))" ||
        { cat run/run.json; fail "run.json: not $1"; }
}
git=$(command -v git)
if [ -n "$git" ]; then
    export GIT_CONFIG_GLOBAL=/dev/null
    git init -q project && git -C project add . &&
        git -C project -c user.name=a -c user.email=a@b.c commit -q -m first || fail "a repository for the test"
fi

train --set run.folder=run --set train.steps=3 > run.log 2>&1 || { cat run.log; fail "the run"; }
is "r['why'] == 'done' and r['exit_code'] == 0 and r['before'] == []"
is "r['start'].endswith('Z') and r['start'] <= r['end']"
is "r['command'][1:3] == ['run', 'project/train.lua'] and 'train.steps=3' in r['command']"
is "r['script'] == 'project/train.lua' and r['version'] and r['abi'].startswith('orrery ')"
is "{'device/cpu', 'strategy/data', 'transport/shm', 'store/posix'} <= {p['name'] for p in r['plugins']}"
is "all(p['version'] and p['path'].endswith('.so') for p in r['plugins'])"
is "r['mesh'] == 'dp=2' and len(r['plan']) == 64"
is "[h['ranks'] for h in r['hosts']] == [[0, 1]] and all(h['host'] and h['device'] for h in r['hosts'])"
if [ -n "$git" ]; then
    commit=$(git -C project rev-parse HEAD)
    is "r['revision'] == {'commit': '$commit', 'clean': True}"
    revision() {  # SCRIPT: of a run of it
        rm -rf other
        $orrery run "$1" "${settings[@]}" --set run.folder=other --set train.steps=1 > other.log 2>&1 ||
            { cat other.log; fail "$1"; }
        python3 -c "import json; print(json.load(open('other/run.json'))['revision'])"
    }
    cp project/train.lua "project/it's new.lua"
    [ "$(revision "project/it's new.lua")" = "{'commit': '$commit', 'clean': False}" ] || fail "a script not committed"
    rm "project/it's new.lua"
    git -C project worktree add -q ../tree &&
        [ "$(revision tree/train.lua)" = "{'commit': '$commit', 'clean': True}" ] || fail "a worktree"
    git -C project worktree remove --force ../tree
    mkdir empty && git init -q empty && cp -r project/train.lua project/parts empty/ &&
        [ "$(revision empty/train.lua)" = None ] || fail "a repository without a commit"
else
    is "r['revision'] is None"
fi
for file in train.lua parts/model.lua; do
    cmp "project/$file" "run/lua/$file" || fail "lua/ lacks $file"
done
for file in init.lua models/gpt.lua optim.lua; do
    cmp "$source_root/scripts/orrery/$file" "run/lua/orrery/$file" || fail "lua/ lacks orrery/$file"
done
$orrery run run/lua/train.lua "${settings[@]}" --set lua.library=run/lua --set run.folder=again \
    --set train.steps=3 > again.log 2>&1 || { cat again.log; fail "what was kept does not run"; }
cmp <(losses run) <(losses again) || fail "what was kept trains something else"

# What was kept goes on and is scored where the script that was started is no more.
cp -r run kept
mv project gone
head -c 600 text.txt > little.txt
exits 0 scored $orrery evaluate kept little.txt --set mesh.dp=1
grep -q "^perplexity" scored.txt || { cat scored.txt; fail "a run whose script requires is not scored"; }
exits 2 told $orrery run kept --set train.steps=4
remedy=$(sed -n 's/.*--set \(run.script=[^ ]*\).*/\1/p' told.err)
[ -n "$remedy" ] || { cat told.err; fail "no word of the copy"; }
exits 0 went_on $orrery run kept --set train.steps=4 --set "$remedy"
grep -q "resumed from step 3" went_on.txt went_on.err || { cat went_on.txt went_on.err; fail "it did not go on"; }
mv gone project

# Changed since; stopped by a signal.
echo "-- changed" >> project/train.lua
tiny_exec=exec train --set run.folder=run --set train.steps=1000000 > run.log 2>&1 &
launcher=$!
wait_for steps_done run 8 || { cat run.log; fail "the second start"; }
is "r['end'] is None and r['why'] is None and len(r['before']) == 1"
kill -TERM $launcher
wait $launcher
[ $? -eq 75 ] || { cat run.log; fail "stopped: not 75"; }
is "r['exit_code'] == 75 and r['why'].startswith('[rank 0] stopped by signal 15 after step ')"
is "r['before'][0]['why'] == 'done' and r['before'][0]['ranks'] == 2 and 'plugins' not in r['before'][0]"
[ -z "$git" ] || is "r['revision']['clean'] is False"
grep -q changed run/lua/train.lua || fail "lua/ has the script of before"
# Killed: nobody could say it.
tiny_exec=exec train --set run.folder=run --set train.steps=1000000 > run.log 2>&1 &
launcher=$!
wait_for grep -q "resumed from" run.log || { cat run.log; fail "the third start"; }
sleep 0.2
kill -9 $(ranks_of $launcher)
wait $launcher
is "r['end'] is None and len(r['before']) == 2"
# A signal before a step was begun: rank 1 never comes.
as_rank 0 2 "$(free_port)" $orrery run project/train.lua "${settings[@]}" --set run.folder=run \
    --set run.join_timeout_s=60 --set train.steps=1000000 > run.log 2>&1 &
rank=$!
wait_for sh -c "[ \$(grep -c '\"start\"' run/run.json) -eq 4 ]" || { cat run.log; fail "the start of one rank"; }
kill -TERM $(ranks_of $rank)
wait $rank
[ $? -eq 75 ] || { cat run.log; fail "stopped before a step: not 75"; }
is "r['exit_code'] == 75 and r['why'] == 'stopped by signal 15 with nothing to save' and r['hosts'] is None"
# An error, where there is no program git.
mkdir bin && for tool in bash sh timeout; do ln -s "$(command -v $tool)" bin/; done
PATH=$PWD/bin train --set run.folder=run --set script.lr=1e30 --set train.steps=1000000 > run.log 2>&1
[ $? -eq 1 ] || { cat run.log; fail "a run that diverges"; }
is "r['exit_code'] == 1 and 'the loss is' in r['why'] and len(r['before']) == 4 and r['before'][2]['end'] is None"
is "r['revision'] is None"
echo "1 passed, 0 failed"
