#!/usr/bin/env bash
# Folders of checkpoints that others have touched, and runs that diverge: the newest sound one is used, what is passed
# over is named with the reason, and the run is never blocked.
source "$(dirname "$0")/lib.sh"
# Saves hold the steps: none of them is left out where steps are this short.
run() {
    run_tiny "$@" --set train.evaluate_every=0 --set checkpoint.keep=3 --set checkpoint.async=false \
        --set script.layers=1
}
step() { printf '%s/checkpoints/step-%08d' "$1" "$2"; }
# from NAME: a copy of the run with steps 20, 30 and 40.
from() { cp -r whole "$1"; }
# says FILE PATTERN...: every pattern stands in it, and no words of a library's own.
says() {
    local file=$1 pattern
    shift
    for pattern in "$@"; do grep -q -- "$pattern" "$file" || { cat "$file"; fail "$file lacks: $pattern"; }; done
    ! grep -q "json.exception\|internal error" "$file" || { cat "$file"; fail "$file: a library's own words"; }
}
good() {
    local name=$1
    shift
    "$@" > "$name.log" 2>&1 || fail "$name: exit code $?: $(cat "$name.log")"
}
good whole run whole 40
losses whole > whole.txt
[ "$(ls -d whole/checkpoints/step-* | wc -l)" -eq 3 ] || { ls whole/checkpoints; fail "expected three checkpoints"; }
same_as_whole() {
    losses "$1" > "$1.txt"
    cmp whole.txt "$1.txt" || fail "$1: another trajectory"
}

# A manifest of another step, and a whole step under newer names.
from copied
cp "$(step copied 20)/manifest.json" "$(step copied 40)/manifest.json"
cp -r "$(step copied 20)" "$(step copied 99)"
cp -r "$(step copied 20)" "$(step copied 9223372036854775807)"
good copied run copied 40
says copied.log "resumed from step 30" "step 40: its manifest is for step 20" "step 99: its manifest is for step 20" \
    "step 9223372036854775807: the maximum step is" \
    "the previous files of step 40 were set aside as .*step-00000040.aside-1"
same_as_whole copied

# A byte that is not UTF-8 in the newest manifest, and lines of others in the metrics.
from latin
printf '\xe9' | dd of="$(step latin 40)/manifest.json" bs=1 seek=40 conv=notrunc 2> /dev/null
printf '{"step":"forty"}\n{"a":"\xe9"}\n' >> latin/metrics.jsonl
good latin.sample "$orrery" sample latin --prompt a --tokens 3
says latin.sample.log "sampling from step 30" "step 40, manifest: not valid json: byte 0xe9 at offset 40 is not UTF-8"
good latin run latin 40
says latin.log "resumed from step 30" "byte 0xe9 at offset 40 is not UTF-8"
same_as_whole latin

# What is no checkpoint stands in the way of the next ones, and stays.
from blocked
rm "$(step blocked 40)/manifest.json"
echo notes > "$(step blocked 35)"
ln -s /nowhere "$(step blocked 31)"
good blocked run blocked 40 --set checkpoint.every_steps=5
says blocked.log "resumed from step 30" "passed over: step-00000040 has no manifest.json" \
    "passed over: step-00000035 is no folder" "passed over: step-00000031 is a symbolic link, which is not followed" \
    "the previous files of step 35 were set aside as .*step-00000035.aside-1" "checkpoint of step 40 committed"
grep -q notes "$(step blocked 35).aside-1" || fail "blocked: the notes are gone"
same_as_whole blocked
good again run blocked 40
says again.log "resumed from step 40"
from unmarked
rm "$(step unmarked 40)/.orrery-checkpoint"
good unmarked run unmarked 80
says unmarked.log "resumed from step 40" "step-00000040 has no file .orrery-checkpoint, so it is read but never removed"
[ -e "$(step unmarked 40)" ] || fail "unmarked: a folder without the marker was removed"
[ ! -e "$(step unmarked 50)" ] || fail "unmarked: nothing is retired"

# Nothing sound: refused, with what to do.
from lost
for file in lost/checkpoints/*/manifest.json; do echo > "$file"; done
run lost 40 > lost.log 2>&1 && fail "lost: it started"
says lost.log "every checkpoint in" "step 20, manifest" "step 30, manifest" "step 40, manifest" "--fresh"

# Runs that diverge, to NaN or to 1e13: the states are finite and are saved, but no start goes on from them, also
# where the losses on both sides of a checkpoint are high.
for lr in 1e17 1e4; do
    name=diverged.$lr
    from $name
    run $name 60 --set script.lr=$lr --set checkpoint.every_steps=1 > $name.log 2>&1
    says $name.log "the checkpoint of step 41 is marked as suspect: the loss of step 42 is"
    for saved in $name/checkpoints/step-0000004[1-9]; do
        [ -e "$saved/suspect.txt" ] || { cat $name.log; fail "$saved: no mark"; }
    done
    [ -e "$(step $name 40)" ] || fail "$name: no sound step is left"
    good calm run $name 60
    says calm.log "resumed from step 40" "suspect, an older checkpoint is used: step 4[1-9] is marked: .the loss of"
    good calm.sample "$orrery" sample $name --prompt a --tokens 3
    says calm.sample.log "sampling from step 60"
done
says diverged.1e4.log "above 1000 times [0-9.]*, the median of the last 4[0-9] losses"
run only 60 --set script.lr=1e17 --set checkpoint.every_steps=1 > /dev/null 2>&1
run only 60 > only.log 2>&1 && fail "only suspects: it started"
says only.log "no checkpoint in .* can be used" "step 1 is marked: .the loss of step 2 is nan" "--fresh"
echo "1 passed, 0 failed"
