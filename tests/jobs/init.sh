#!/usr/bin/env bash
# `orrery init`: its README word for word (train, kill, resume, sample, export), the same losses after the kill; --data;
# a folder that exists, bad names and bad texts are refused, and nothing is written then.
source "$(dirname "$0")/lib.sh"

mkdir bin && ln -s "$orrery" bin/orrery && PATH=$work/bin:$PATH
exits 0 init orrery init my_model
! grep -rqi sundial my_model || fail "the template's name is left"
library=$(sed -n 's/.*"workspace.library": \["\(.*\)"\],/\1/p' my_model/.luarc.json)
[ -f "$library/orrery/meta.lua" ] || fail "editors find no types: .luarc.json names $library"
! command -v luacheck > /dev/null || luacheck -q --std lua54 my_model || fail "luacheck of my_model"

# steps_of README: its commands.
steps_of() { awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$1"; }
steps_of my_model/README.md > steps.sh
for word in "orrery run" "kill -KILL" "orrery sample" "orrery export"; do
    grep -q "$word" steps.sh || fail "README.md has no $word"
done
(cd my_model && timeout 500 sh -eu ../steps.sh) > steps.log 2>&1 ||
    { tail -30 steps.log; fail "the commands of README.md"; }
grep -q "resumed from step" steps.log || { cat steps.log; fail "the killed run did not resume"; }
cmp <(losses my_model/runs/laptop) <(losses my_model/runs/killed) || fail "other losses after the kill"
[ "$(losses my_model/runs/killed | wc -l)" -eq 200 ] || fail "not 200 steps"
[ -s my_model/exported/model.safetensors ] || fail "nothing was exported"

# The job files, by each engine that is there.
for engine in slurm kubernetes ssh; do
    grep -q -- "--config $engine.toml --engine $engine" my_model/README.md ||
        fail "README.md does not submit by $engine"
    orrery plugins | grep -q "^  engine/$engine " ||
        { echo "skipped: job file of $engine: there is no such engine"; continue; }
    (cd my_model && exits 0 "$engine" orrery submit train.lua --config $engine.toml --engine $engine --print &&
        grep -q "train.lua" "$engine.txt") || exit 1
done

exits 0 init orrery init deeper/own/ --data text.txt
grep -q "path = \"$work/text.txt\"" deeper/own/laptop.toml || fail "--data is not in the configuration"
! grep -rq '| text.txt' deeper/own && [ ! -e deeper/own/text.txt ] || fail "the manual was copied, too"
exits 0 checked orrery check deeper/own/train.lua --config deeper/own/laptop.toml

before=$(find . -type f | sort | xargs sha256sum)
refused "my_model exists and is not empty|nothing was written|orrery init FOLDER" orrery init my_model
: > taken
refused "taken exists and is not empty" orrery init taken
for name in "a b" .hidden a/..a "ünï" ""; do refused "is not a valid name" orrery init "$name"; done
refused "--data none.txt|No such file" orrery init other --data none.txt
refused "--data .|expected a file" orrery init other --data .
: > empty.txt
refused "--data empty.txt is empty" orrery init other --data empty.txt
rm -f empty.txt taken refused.txt refused.err
[ ! -e other ] && [ "$(find . -type f | sort | xargs sha256sum)" = "$before" ] || fail "a refused init wrote files"
echo "1 passed, 0 failed"
