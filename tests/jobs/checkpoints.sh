#!/usr/bin/env bash
# `orrery checkpoints` on a run and beside one that is live; what retention keeps; `--from-step`; room for two.
source "$(dirname "$0")/lib.sh"
# Each save ends before the next step: none is left out.
waits="--set checkpoint.async=false"
run() { run_tiny "$@" $waits --set script.layers=1 --set script.lr=0.003 --set checkpoint.keep_every_steps=30; }
good() {
    local name=$1
    shift
    "$@" > "$name.log" 2>&1 || fail "$name: exit code $?: $(cat "$name.log")"
}
step() { printf '%s/checkpoints/step-%08d' "$1" "$2"; }
steps_in() { "$orrery" checkpoints list "$1" --json | python3 -c '
import json, sys
print(*(s["step"] for s in json.load(sys.stdin)["steps"]))'; }
has() {  # FILE WORDS
    local missing
    missing=$(missing_word "$2" "$(cat "$1")")
    [ -z "$missing" ] || { cat "$1"; fail "$1 lacks \"$missing\""; }
}

# saved_at FOLDER SECONDS: as if the step had been saved so many seconds from now.
saved_at() {
    python3 - "$1/manifest.json" "$2" << 'EOF'
import hashlib, re, sys, time
text = open(sys.argv[1]).read()
text = text[:text.index(',"digest":')] + "}"
text = re.sub('"time":[0-9.]+', '"time":%d' % (time.time() + int(sys.argv[2])), text, count=1)
open(sys.argv[1], "w").write(text[:-1] + ',"digest":"%s"}' % hashlib.sha256(text.encode()).hexdigest())
EOF
}

# Steps 10 ... 80; evaluated are 20, 40 ...; those of 30 and 60 stay for good, and the best one by evaluation.
good whole run whole 80 --set checkpoint.keep_best=1
best=$(grep eval_loss whole/metrics.jsonl | sort -t: -k3 -g | head -1 | sed -E 's/.*"step":([0-9]+).*/\1/')
[ "$(steps_in whole)" = "$(printf '%s\n' 80 70 60 30 "$best" | sort -rnu | tr '\n' ' ' | sed 's/ $//')" ] ||
    fail "kept: $(steps_in whole), the best is $best"
exits 0 list "$orrery" checkpoints list whole
has list.txt "whole/checkpoints (posix): |step  saved|dp=2|KiB|$(date -u +%Y-)"
exits 0 show "$orrery" checkpoints show whole/checkpoints 60
digest=$(sha256sum < "$(step whole 60)/rank-00000-000.safetensors" | cut -d' ' -f1)
has show.txt "rank-00000-000.safetensors|wte.weight|f32[256,48]|dp:R|$digest"
exits 0 verify "$orrery" checkpoints verify whole all
has verify.txt "step 80: valid, 2 objects|step 30: valid, 2 objects|match its manifest"

# Refused with what there is.
refused "step 50: there is no such checkpoint in whole/checkpoints|there are 80, 70, 60" \
    "$orrery" checkpoints show whole 50
refused "nowhere is not a folder" "$orrery" checkpoints list nowhere
refused "--keep|1" "$orrery" checkpoints prune whole --keep 1
refused "--mesh \"dp\": expected axes" "$orrery" checkpoints copy whole 80 --to there --mesh dp
refused "checkpoint.keep is 1, expected at least 2" run few 20 --set checkpoint.keep=1
refused "keep_best = 1|no step before the last is both saved (every 10 steps) and evaluated (every 0)" run best 20 \
    --set checkpoint.keep_best=1 --set train.evaluate_every=0
refused "keep_every_steps = 7 |every_steps = 10:|only steps that 70 divides" run_tiny best 20 \
    --set checkpoint.keep_every_steps=7

# By flags; the dry run removes nothing and says the same.
before=$(steps_in whole)
exits 0 dry "$orrery" checkpoints prune whole --keep-every-steps 40 --keep-best 0 --dry-run
has dry.txt "the newest 2, every step that 40 divides|step 60 would go: no rule keeps it|"\
"step 80 stays: one of the newest 2; 40 divides it"
[ "$(steps_in whole)" = "$before" ] || fail "a dry run has removed something"

# A pin keeps a step.
exits 0 pin "$orrery" checkpoints pin whole 60 "for the paper"
exits 0 list "$orrery" checkpoints list whole
has list.txt "pinned: for the paper"
exits 0 dry "$orrery" checkpoints prune whole --keep-every-steps 40 --keep-best 0 --dry-run
has dry.txt "step 60 stays: pinned: for the paper"
exits 0 unpin "$orrery" checkpoints unpin whole 60
has unpin.txt "the reason was: for the paper"
refused "step 60 in whole/checkpoints is not pinned" "$orrery" checkpoints unpin whole 60
# A store that cannot be written, also for root: a folder has the name under which the pin is written first.
mkdir "$(step whole 60)/.pinned.txt.new"
exits 1 pin "$orrery" checkpoints pin whole 60 "for the paper"
has pin.err "step 60 in whole/checkpoints cannot be pinned: cannot |write permission there|checkpoints copy"
rmdir "$(step whole 60)/.pinned.txt.new"
# A step that was saved while the clock was ten hours ahead: said so, and of no hour before that time comes.
cp -r whole early
saved_at "$(step early 60)" 36000
exits 0 early "$orrery" checkpoints list early
grep "wall clock was ahead; not counted by rules per hour or day" early.txt > ahead.txt
[ "$(wc -l < ahead.txt)" -eq 1 ] && grep -q "^ *60 .*saved at a time later than now (2" ahead.txt ||
    { cat early.txt; fail "list: a step of later than now"; }
exits 0 early "$orrery" checkpoints prune early --keep-every-steps 0 --keep-best 0 --keep-hourly 1 --dry-run
has early.txt "step 80 stays: one of the newest 2; the newest of its hour|step 60 would go: no rule keeps it"
# What anybody has written beside a step reaches no terminal raw.
printf '\033[2Jnot this\r\302\233 one\n%0300d' 0 > "$(step whole 60)/suspect.txt"
exits 0 raw "$orrery" checkpoints list whole
rm "$(step whole 60)/suspect.txt"
has raw.txt 'suspect: \x1b[2Jnot this\x0d\xc2\x9b one\n000|000...'
LC_ALL=C grep -q $'[\033\r\302]' raw.txt && fail "list: raw bytes of suspect.txt"
refused "pin: \"\": expected the reason, one line" "$orrery" checkpoints pin whole 60 " "

# Damage: named by object, tensor and bytes; it counts for nothing and stays.
cp -r whole hurt
printf '\xff' | dd of="$(step hurt 70)/rank-00000-000.safetensors" bs=1 seek=20000 conv=notrunc status=none
rm "$(step hurt 30)/rank-00000-000.safetensors"
exits 1 verify "$orrery" checkpoints verify hurt
has verify.txt "damaged: step 70, rank-00000-000.safetensors is damaged between bytes 0 and|(holds |"\
"damaged: step 30, rank-00000-000.safetensors is missing|step 80: valid, 2 objects"
exits 1 one "$orrery" checkpoints verify hurt 70 --json
grep -q '"damage": \[$' one.txt || { cat one.txt; fail "verify --json"; }
exits 0 sound "$orrery" checkpoints verify hurt 80
exits 0 prune "$orrery" checkpoints prune hurt --keep-every-steps 0 --keep-best 0
has prune.txt "step 70 stays: damaged, so it is left for inspection: step 70, rank-00000|"\
"step 60 stays: one of the newest 2|step 80 stays"
[ -e "$(step hurt 70)" ] && [ -e "$(step hurt 60)" ] && [ -e "$(step hurt 80)" ] || fail "prune: $(steps_in hurt)"
# What a killed prune has left, the next one removes.
cp -r "$(step hurt 80)" "$(step hurt 10).removed"
exits 0 dry "$orrery" checkpoints prune hurt --dry-run
has dry.txt "1 interrupted removal would be finished"
exits 0 prune "$orrery" checkpoints prune hurt
has prune.txt "1 interrupted removal finished|0 checkpoints removed"
[ ! -e "$(step hurt 10).removed" ] || fail "a killed prune's folder is there after the next one"
exits 1 hurt_copy "$orrery" checkpoints copy hurt 70 --to hurt_copy
has hurt_copy.err "step 70, rank-00000-000.safetensors is damaged"
[ -z "$(ls hurt_copy 2> /dev/null)" ] || fail "a failed copy left $(ls hurt_copy)"

# A manifest that is none: a row that says so, and the others.
cp -r whole torn
truncate -s 100 "$(step torn 80)/manifest.json"
: > "$(step torn 70)/manifest.json"
sed -i 's/"version":[0-9]*/"version":1e308/' "$(step torn 30)/manifest.json"
exits 0 torn "$orrery" checkpoints list torn
has torn.txt "60  2"
[ "$(grep -c 'damaged: step [378]0, manifest' torn.txt)" -eq 3 ] || { cat torn.txt; fail "list of torn manifests"; }
exits 0 torn "$orrery" checkpoints list torn --json

# What takes a step's place and is none: named, not passed over in silence; and so is what was set aside.
cp -r whole gap
rm "$(step gap 80)/manifest.json" "$(step gap 70)/manifest.json"
mkfifo "$(step gap 70)/manifest.json"
cp -r "$(step gap 60)" gap/checkpoints/step-00000060.aside-1
mkdir gap/checkpoints/step-00000090.partial && head -c 1000 text.txt > gap/checkpoints/step-00000090.partial/some
exits 1 gap "$orrery" checkpoints verify gap
has gap.txt "no checkpoint: step-00000080 has no manifest.json|step-00000070 has a manifest.json that is no file|"\
"step 60: valid, 2 objects"
exits 1 gap "$orrery" checkpoints verify gap 80
exits 1 gap "$orrery" checkpoints verify gap --json
has gap.txt '"step": 80'
exits 0 gap "$orrery" checkpoints verify gap 60
exits 0 gap "$orrery" checkpoints list gap
has gap.txt "beside them: step-00000080 has no manifest.json|step-00000060.aside-1 was set aside: |"\
"step-00000090.partial is being written, or was left unfinished: 1000 bytes"
good gap_on run gap 65
has gap_on.log "passed over: step-00000080 has no manifest.json|that is no file|resumed from step 60|"\
"step-00000060.aside-1 was set aside"
good gap_from run gap 66 --from-step 65
has gap_from.log "passed over: step-00000080 has no manifest.json|resumed from step 65"

# A copy is the same bit for bit, appears whole, and a run goes on from it as from the original.
exits 0 copy "$orrery" checkpoints copy whole 60 --to archive
diff -r "$(step whole 60)" archive/step-00000060 || fail "the copy differs"
refused "step 60 already exists in archive" "$orrery" checkpoints copy whole 60 --to archive
# A folder of copies is not a run; a copy in the folder checkpoints of a new folder makes it one.
copies="it has copies of checkpoints (step-00000060)|checkpoints copy archive 60 --to NEW/checkpoints"
refused "archive is not a run's folder: it has no config.toml|$copies" "$orrery" sample archive
refused "archive is not a run's folder: it has no config.toml|$copies" "$orrery" run archive
refused "export: archive is not a run's folder|$copies" "$orrery" export archive archive_out
refused "archive has neither config.toml nor config.json|$copies" "$orrery" evaluate archive text.txt
refused "run.folder: archive is not a run's folder: it has no checkpoints/|$copies" run archive 80
[ "$(ls -A archive)" = step-00000060 ] || fail "a run that was refused left $(ls -A archive)"
exits 0 own "$orrery" checkpoints copy whole 60 --to own/checkpoints
has own.txt "own is a run's folder now, with the script and configuration of whole"
exits 0 own_sample "$orrery" sample own --prompt "3 plus" --tokens 3
exits 0 own_export "$orrery" export own own_raw --raw
good own_on "$orrery" run own --set train.steps=70
has own_on.log "resumed from step 60"
# A copy that is killed (a limit on the size of files kills it) leaves no run; the next one finishes it.
cp -r whole large
head -c 3000000 /dev/zero | tr '\0' ' ' > large/lua/large.lua
killed() {  # KIB TO
    (ulimit -c 0 -f "$1" && exec "$orrery" checkpoints copy large 60 --to "$2") > killed.txt 2>&1
    [ $? -gt 128 ]
}
for limit in 16 1000; do  # KiB: in the step, after it
    killed $limit cut.$limit/checkpoints || { cat killed.txt; fail "it was not killed at $limit KiB"; }
    refused "cut.$limit is not a run's folder|a copy to it was killed|copy\` again" "$orrery" sample cut.$limit
    exits 0 dry "$orrery" checkpoints copy large 60 --to cut.$limit/checkpoints --dry-run
    has dry.txt "cut.$limit would become a run's folder, with the script and configuration of large"
    exits 0 again "$orrery" checkpoints copy large 60 --to cut.$limit/checkpoints
    has again.txt "cut.$limit is a run's folder now, with the script and configuration of large"
    diff -r -x checkpoints -x .lock -x .launcher.lock large cut.$limit > differ.txt
    [ "$(grep -v '^Only in large: ' differ.txt)" = "" ] || fail "finished: $(cat differ.txt)"
    good cut.$limit "$orrery" run cut.$limit --set train.steps=70
    has cut.$limit.log "resumed from step 60"
done
[ -d cut.1000/checkpoints/step-00000060 ] || fail "no step"
mkdir others && echo mine > others/script.lua
exits 0 others "$orrery" checkpoints copy whole 60 --to others/checkpoints
[ "$(ls -A others) $(cat others/script.lua)" = "checkpoints
script.lua mine" ] || fail "a copy wrote files next to those of others: $(ls -A others)"
# Several at once: one makes it, whole; the others are refused.
copies=()
for i in 1 2 3 4 5 6; do
    "$orrery" checkpoints copy whole 60 --to at_once > at_once.$i.txt 2>&1 &
    copies+=($!)
done
made=0
for copy in "${copies[@]}"; do wait "$copy" && made=$((made + 1)); done
[ $made -eq 1 ] || { cat at_once.?.txt; fail "$made of 6 copies of one step at once say that they made it"; }
diff -r "$(step whole 60)" at_once/step-00000060 || fail "copies at once"
[ "$(ls -A at_once)" = step-00000060 ] || fail "copies at once left $(ls -A at_once)"
mkdir busy
flock -F busy/.step-00000060.lock sleep 60 &
holder=$!
wait_for bash -c '! flock -n busy/.step-00000060.lock true' || fail "nobody holds the lock"
refused "busy is in use by another copy of that step|wait for it" "$orrery" checkpoints copy whole 60 --to busy
kill $holder
for to in whole/checkpoints/step-00000060 whole/inside whole/checkpoints/x archive/step-00000060/x; do
    refused "$to is inside the |name the run's folder itself, or a folder outside" \
        "$orrery" checkpoints copy whole 60 --to $to
done
refused "--to whole/checkpoints is the store that step 60 is copied from" \
    "$orrery" checkpoints copy whole 60 --to whole/checkpoints --mesh dp=1
exits 0 dry "$orrery" checkpoints copy whole 60 --to moved/checkpoints --mesh dp=1 --dry-run
has dry.txt "would be copied to moved/checkpoints for mesh"
[ ! -e moved ] || fail "a dry run has written"
good moved "$orrery" checkpoints copy archive 60 --to moved/checkpoints --mesh dp=1
good gone_on run moved 80
has gone_on.log "resumed from step 60"
losses moved > moved.txt
losses whole | tail -n 20 > tail.txt
cmp moved.txt tail.txt || fail "another trajectory behind a copy"

# From an older step: newer ones are left behind, marked; the run saves in their place, and what it has saved counts.
losses whole > whole.txt
cp -r whole queued
good once run queued 65 --from-step 60
cp -r queued set_back
saved_at "$(step set_back 65)" -36000  # the clock was set back meanwhile
good set_back run set_back 75 --from-step 60
has set_back.log \
    "resumed from step 65|--from-step 60: an earlier start did this (step 80 is marked|step 65 was saved since"
good queued run queued 75 --from-step 60
has queued.log \
    "resumed from step 65|--from-step 60: an earlier start did this (step 80 is marked|step 65 was saved since"
cp -r queued queued_late
rm -r queued_late/checkpoints/step-00000060
good queued_late run queued_late 78 --from-step 60
has queued_late.log "resumed from step 75"
refused "--from-step 60: train.steps is 60, so no step is left to run after it" run whole 60 --from-step 60
if "$orrery" checkpoints pin whole 70 "for the paper" > pin.txt 2>&1; then
    refused "--from-step 60: step 70 in whole/checkpoints is pinned (for the paper)|unpin" run whole 80 --from-step 60
    exits 0 unpin "$orrery" checkpoints unpin whole 70
fi
exits 0 list "$orrery" checkpoints list whole
grep -q suspect list.txt && { cat list.txt; fail "a refused --from-step has marked steps"; }
good back run whole 80 --from-step 60
has back.log "resumed from step 60|later checkpoints, marked as suspect until they are overwritten: steps 80, 70|"\
"the previous files of step 70 were set aside as"
losses whole > back.txt
cmp whole.txt back.txt || fail "--from-step: another trajectory"
[ "$(steps_in whole | cut -d' ' -f1-3)" = "80 70 60" ] || fail "--from-step: $(steps_in whole)"
good again run whole 80
has again.log "resumed from step 80"
# No marked step is left, and the command is the same: a job that is queued again. Other settings go back (shorter).
cp -r whole same
good same run same 80 --from-step 60
has same.log "resumed from step 80|did so before, with the same settings, and has saved step 80 since"
# Another text of the script, or another path of the data, is another setting.
cp -r whole other_script
mkdir other_lua
{ echo "-- another text"; cat "$source_root/scripts/gpt.lua"; } > other_lua/gpt.lua
tiny_script=other_lua/gpt.lua good other_script run other_script 80 --from-step 60
has other_script.log "resumed with changed settings: text of gpt.lua|resumed from step 60"
cp -r whole other_path
ln text.txt same_text.txt
good other_path run other_path 80 --from-step 60 --set data.path=same_text.txt
has other_path.log "resumed with changed settings: data.path|-> \"same_text.txt\"|resumed from step 60"
good shorter run whole 65 --from-step 60
exits 0 list "$orrery" checkpoints list whole
has list.txt "suspect: the run went on from step 60"
good behind run whole 65
has behind.log "resumed from step 65|step 80 is marked: \"the run went on from step 60\""
refused "--from-step 50: there is no such checkpoint in whole/checkpoints|there are 80, 70, 65, 60" \
    run whole 90 --from-step 50
refused "--from-step 80: it is marked as suspect (the run went on from step 60)" run whole 90 --from-step 80
# A mark that is taken off: the step counts again. A marked step goes once two valid ones are after it.
cp -r whole unmarked
exits 0 unmark "$orrery" checkpoints unmark unmarked 80
has unmark.txt "step 80 is no longer marked as suspect; the reason was: the run went on from step 60"
refused "step 80 in unmarked/checkpoints is not marked as suspect" "$orrery" checkpoints unmark unmarked 80
refused "step 50: there is no such checkpoint" "$orrery" checkpoints unmark unmarked 50
good unmarked run unmarked 80
has unmarked.log "resumed from step 80"
cp -r whole passed
echo "by hand" > "$(step passed 65)/suspect.txt"
good passed run passed 105
has passed.log "resumed from step 60"
[ "$(steps_in passed)" = "105 100 90 60 30" ] || fail "a suspect step that two valid ones are after: $(steps_in passed)"
refused "--fresh" run whole 90 --from-step 60 --fresh
run hurt 90 --from-step 70 > hurt.log 2>&1 && fail "it went on from a damaged step"
has hurt.log "--from-step 70: step 70, rank-00000-000.safetensors is damaged|there are 80, 70, 60"

# Started again after a failure it goes on from what it has saved since, not from that step once more.
cp -r moved again_moved
tiny_exec=exec run again_moved 100000 --from-step 70 --restarts 2 > again_moved.log 2>&1 &
launcher=$!
wait_for grep -q "checkpoint of step 90 committed" again_moved.log ||
    { cat again_moved.log; fail "--restarts: no steps"; }
kill -9 "$(ranks_of $launcher | tail -n 1)"
resumed_twice() { [ "$(grep -c "resumed from step" again_moved.log)" -eq 2 ]; }
wait_for resumed_twice || { cat again_moved.log; fail "--restarts: it was not started again"; }
kill -TERM $launcher
wait $launcher
grep "resumed from step" again_moved.log | head -n 1 | grep -q "step 70:" ||
    { cat again_moved.log; fail "--from-step 70"; }
[ "$(grep -o "resumed from step [0-9]*" again_moved.log | tail -n 1 | grep -o '[0-9]*$')" -ge 90 ] ||
    { grep "resumed" again_moved.log; fail "--restarts goes back to --from-step"; }

# Beside a job that is live: looking is safe, prune is refused.
tiny_exec=exec run live 100000 > live.log 2>&1 &
launcher=$!
wait_for steps_done live 25 || { cat live.log; fail "the live run"; }
for i in 1 2 3 4 5; do
    "$orrery" checkpoints list live > beside.txt 2>&1 && "$orrery" checkpoints verify live >> beside.txt 2>&1 ||
        { cat beside.txt; fail "looking beside a live run"; }
done
refused "live is in use by another run (pid" "$orrery" checkpoints prune live
exits 0 dry "$orrery" checkpoints prune live --dry-run
kill -TERM $launcher
wait $launcher

# Room for two checkpoints and the one that is being written, asked for before anything starts.
export source_root orrery
export -f run_tiny
room() { unshare -m bash -c 'mount -t tmpfs -o size='"$1"' tmpfs room && shift && "$@"' room "$@"; }
mkdir room
# One checkpoint takes 0.84 MiB and the rest of a run 0.15 MiB; two do not fit in 1.4 MiB.
if room 1m true 2> /dev/null; then
    room 1m bash -c 'run_tiny room/run 40' > room.log 2>&1 && fail "it fits in one MiB"
    has room.log "room/run/checkpoints has 1.0 MiB free, but this run needs 2.4 MiB: 3 checkpoints of |"\
"since 2 and the one being written|choose another run.folder"
    room 1400k bash -c 'run_tiny room/run 4 --set checkpoint.every_steps=0' > one.log 2>&1 ||
        { cat one.log; fail "one fits"; }
    room 4m bash -c 'run_tiny room/run 40' > fits.log 2>&1 || { cat fits.log; fail "three fit in 4 MiB"; }
else
    echo "skipped: no mounts of its own: room"
fi
echo "1 passed, 0 failed"
