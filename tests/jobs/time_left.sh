#!/usr/bin/env bash
# The time left decides: where a step and a save fit into run.grace_s they are made, else the job ends at once with 75
# and says what is lost; run.notice_file asks to stop as a signal does.
source "$(dirname "$0")/lib.sh"
steps=3000
slow="--set checkpoint.every_steps=0 --set train.evaluate_every=0"
run_tiny whole $steps $slow > whole.log 2>&1 || { cat whole.log; fail "the uninterrupted run"; }
losses whole > whole.txt
rank_of() { ranks_of $launcher | sed -n "$(($1 + 1))p"; }
begin() {
    local name=$1
    shift
    tiny_exec=exec run_tiny "$name" $steps "$@" > "$name.log" 2>&1 &
    launcher=$!
    wait_for steps_done "$name" 60 || { cat "$name.log"; fail "$name: no steps"; }
}
ends() {
    local name=$1 code
    wait $launcher
    code=$?
    [ $code -eq 75 ] || { cat "$name.log"; fail "$name: exit code $code, expected 75"; }
    grep -q -- "$2" "$name.log" || { cat "$name.log"; fail "$name: it does not say \"$2\""; }
}
resumes() {
    run_tiny "$1" $steps $slow > "$1.resumed.log" 2>&1 || { cat "$1.resumed.log"; fail "$1: resumed"; }
    losses "$1" > "$1.txt"
    cmp whole.txt "$1.txt" || fail "$1: another trajectory after resuming"
}

begin ample $slow --set run.grace_s=60
kill -TERM $launcher
ends ample "the checkpoint is committed"
resumes ample

# Either rank alone is told; all leave after the same step. Steps before the newest checkpoint stay.
for rank in 0 1; do
    for try in 1 2 3 4 5; do
        rm -rf scarce$rank
        begin scarce$rank --set checkpoint.every_steps=50 --set run.grace_s=0.001
        kill -TERM "$(rank_of $rank)"
        wait_for grep -q "start again to resume" scarce$rank.log
        grep -q "the checkpoint is committed" scarce$rank.log || break  # else it was a step that is saved anyway
        wait $launcher
    done
    ends scarce$rank "which is not saved: the rest of run.grace_s = 0.001"
    last=$(losses scarce$rank | tail -1 | cut -d' ' -f1)
    newest=$(ls scarce$rank/checkpoints | grep '^step-[0-9]*$' | tail -1 | sed 's/step-0*//')
    [ "$newest" -lt "$last" ] && [ $((newest % 50)) -eq 0 ] || fail "scarce$rank: step $newest is saved, of $last"
    grep -q "the newest checkpoint is of step $newest" scarce$rank.log || { cat scarce$rank.log; fail "scarce$rank"; }
    resumes scarce$rank
done
# A step of 2,048 tokens takes longer than that on any machine.
begin alone $slow --set mesh.dp=1 --set run.grace_s=0.001 --set train.sequences_per_step=64
kill -TERM $launcher
ends alone "which is not saved.*there is no checkpoint: start again from scratch"

begin noticed $slow --set run.notice_file=going
touch going
ends noticed "preemption notice: the file going exists"
grep -q "the checkpoint is committed" noticed.log || { cat noticed.log; fail "noticed: no checkpoint"; }
rm going
resumes noticed
begin restarted $slow --restarts 2 --set run.notice_file=going
touch going
ends restarted "0 restarts"

refused "run.notice_file: going|already exists|remove it" run_tiny bad 5 --set run.notice_file=going
mkdir place
refused "run.notice_file: place|is a folder|name a file" run_tiny bad 5 --set run.notice_file=place
refused "run.notice_file: none/going|cannot be created: none is not a folder|create the folder" run_tiny bad 5 \
    --set run.notice_file=none/going
refused "run.notice_file: going/x|cannot be checked" run_tiny bad 5 --set run.notice_file=going/x
refused "grace_s" run_tiny bad 5 --set run.grace_s=0
refused "grace_s" run_tiny bad 5 --set run.grace_s=soon
[ ! -e bad ] || fail "a refused run has left a folder"
echo "1 passed, 0 failed"
