#!/usr/bin/env bash
# Data that changes under a run: cut short, it is an error of the sample and no SIGBUS; rewritten in place, it is found
# at the next evaluation, and no checkpoint is saved under the old digest. A name that is another file's by now loses no
# work: the first file is read on, and the log says so.
source "$(dirname "$0")/lib.sh"

# changed NAME WORD COMMAND...: a run whose data the command changes after 5 steps; it ends by itself, with exit code 1.
changed() {
    local name=$1 word=$2 code
    shift 2
    cp text.txt "$name.txt"
    tiny_exec=exec run_tiny "$name" 100000 --set data.path="$name.txt" --set checkpoint.every_steps=100000 \
        --set train.evaluate_every="${every:-20}" > "$name.log" 2>&1 &
    local job=$!
    wait_for steps_done "$name" 5 || { cat "$name.log"; fail "$name: no steps"; }
    "$@"
    wait_for gone $job || { kill -9 $job; tail -5 "$name.log"; fail "$name: it trains on"; }
    wait $job
    code=$?
    [ $code -eq 1 ] || { tail -5 "$name.log"; fail "$name: exit code $code, expected 1"; }
    grep -q "gpt.lua:[0-9]*: data file $name.txt $word" "$name.log" ||
        { tail -5 "$name.log"; fail "$name: no \"$word\""; }
    [ -z "$(ls "$name/checkpoints" 2> /dev/null | grep step)" ] || fail "$name: a checkpoint was saved"
    grep -m1 "data file $name.txt" "$name.log" | cut -c1-160
}
gone() { ! kill -0 "$1" 2> /dev/null; }
rewrite() { tr 'a-z' 'b-za' < text.txt | dd of="$1" conv=notrunc status=none; }

every=0 changed cut "was truncated: sample [0-9]* is bytes" truncate -s 7000 cut.txt
changed rewritten "has other contents since the run began" rewrite rewritten.txt
changed grown "has .* bytes, not the" dd if=text.txt of=grown.txt oflag=append conv=notrunc status=none

# goes_on NAME WORD COMMAND...: a run whose data's name the command changes after 5 steps; it ends well and says WORD,
# "" where it says nothing.
goes_on() {
    local name=$1 word=$2 said
    shift 2
    cp text.txt "$name.txt"
    tiny_exec=exec run_tiny "$name" 300 --set data.path="$name.txt" > "$name.log" 2>&1 &
    local job=$!
    wait_for steps_done "$name" 5 || { cat "$name.log"; fail "$name: no steps"; }
    "$@"
    wait $job || { tail -5 "$name.log"; fail "$name: exit code $?"; }
    said=$(grep -c "data file $name.txt" "$name.log")
    [ "$said" -eq "$([ -z "$word" ]; echo $?)" ] || { tail -5 "$name.log"; fail "$name: told $said times"; }
    grep -q "data file $name.txt $word" "$name.log" || [ -z "$word" ] || fail "$name: no \"$word\""
}
same() { cp text.txt "$1.new" && mv "$1.new" "$1"; }
replace() { tr 'a-z' 'b-za' < text.txt > "$1.new" && mv "$1.new" "$1"; }

goes_on same "" same same.txt
goes_on replaced "was replaced by a file with other contents: the run still reads the file opened at the" \
    replace replaced.txt
goes_on removed "was removed: the run still reads the file opened at the start" rm removed.txt

# A new time on the same bytes is no change.
cp text.txt touched.txt
tiny_exec=exec run_tiny touched 60 --set data.path=touched.txt > touched.log 2>&1 &
job=$!
wait_for steps_done touched 5
touch touched.txt
wait $job || { tail -5 touched.log; fail "touched: exit code $?"; }
echo "1 passed, 0 failed"
