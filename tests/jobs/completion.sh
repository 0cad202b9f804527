#!/usr/bin/env bash
# Completion in bash: commands, flags, --set keys, values, plugins, folders of runs, files; and the manual page, which
# has every command and flag. Both are made from the command table.
source "$(dirname "$0")/lib.sh"
source "$source_root/scripts/completion/orrery"

mkdir -p bin runs/one runs/two other && ln -s "$orrery" bin/orrery && PATH=$work/bin:$PATH
touch runs/one/run.json runs/two/run.json train.lua
# completes LINE WORDS...: among what may come next are these words; with = before the line: they are all.
completes() {
    local line=$1 word found
    shift
    COMP_LINE=${line#=} COMP_POINT=${#COMP_LINE}
    _orrery
    found=$(printf '%s\n' "${COMPREPLY[@]}" | sort -u)
    for word; do grep -qxF -e "$word" <<< "$found" || { echo "$found"; fail "\"$line\" does not offer $word"; }; done
    [ "${line#=}" = "$line" ] || [ "$(grep -c . <<< "$found")" -eq $# ] ||
        { echo "$found"; fail "\"$line\" offers more"; }
}
COMP_WORDBREAKS=$' \t\n"\'><=;|&(:'
completes "orrery " run check init checkpoints --help --version
completes "=orrery che" check checkpoints
completes "orrery run train.lua --" --set --config --help --restarts
completes "=orrery run train.lua --res" --restarts
completes "=orrery check train.lua --print " plan program
completes "=orrery check train.lua --print=pl" plan
completes "=orrery run train.lua --set run.dev" run.device=
completes "orrery run train.lua -s run.device=" cpu
completes "orrery run train.lua --set transport.axis.pp=" shm gloo
completes "=orrery run train.lua --set run.resume=n" never
completes "=orrery run train.lua --set=checkpoint.async=" true false
completes "=orrery run train.lua --set data.path=te" text.txt
completes "orrery run train.lua --set " mesh. script. train.steps=
completes "orrery bench all_reduce --transport " shm threads
completes "=orrery bench all_r" all_reduce
completes "orrery checkpoints " list verify prune
completes "=orrery checkpoints verify --js" --json
completes "orrery sample " runs/one runs/two train.lua
completes "=orrery export runs/o" runs/one
completes "=orrery run tr" train.lua
completes "=orrery export runs/one ot" other
completes "=orrery nothing "
COMP_WORDBREAKS=$' \t\n'
completes "=orrery run train.lua --set run.resume=n" run.resume=never
completes "=orrery run train.lua --set data.path=te" data.path=text.txt

orrery --man-page > orrery.1 || fail "--man-page"
flags=0
for command in $(orrery --complete "" | grep -v '^-'); do
    grep -q "^\.SS orrery ${command//-/\\\\-}" orrery.1 || fail "the manual page lacks $command"
    [ "$command" != checkpoints ] || continue
    page=$(awk -v start=".SS orrery ${command//-/\\\\-}" 'index($0 " ", start " ") == 1 { on = 1; print; next }
        /^\.S/ { on = 0 } on' orrery.1)
    for flag in $(orrery --complete "$command" -- | grep -vx -- --help); do
        grep -qF -e "\\fB${flag//-/\\-}\\fR" <<< "$page" || fail "the manual page of $command lacks $flag"
        flags=$((flags + 1))
    done
done
[ $flags -gt 100 ] || fail "only $flags flags were compared"
! grep -q wire orrery.1 || fail "the manual page has hidden flags"
! command -v man > /dev/null || {
    MANWIDTH=100 man --warnings -E UTF-8 -l orrery.1 > page.txt 2> page.err || { cat page.err; fail "man"; }
    [ ! -s page.err ] || { head page.err; fail "man warns"; }
    grep -q "75 stopped by a signal" page.txt || { tail page.txt; fail "the exit codes"; }
}
echo "1 passed, 0 failed"
