#!/usr/bin/env bash
# `orrery run --restarts N`: whatever ends a rank, the job goes on by itself and has the losses of a run that nothing
# happened to, bit for bit; within its budget, and with nothing left behind.
source "$(dirname "$0")/lib.sh"
steps=1500
run_tiny whole $steps > whole.log 2>&1 || { cat whole.log; fail "the uninterrupted run"; }
losses whole > whole.txt

event() { python3 - "$@" <<'PY'
import json, sys
name, expression = sys.argv[1:3]
events = [json.loads(line) for line in open(name + "/events.jsonl")]
ended = [e for e in events if e["event"] == "ended"]
sys.exit(0 if eval(expression) else f"{name}: not {expression}: " + "\n".join(map(str, events)))
PY
}
is() { event "$@" || { cat "$(basename "$1").log"; fail "$1: events.jsonl"; }; }
# begin NAME [arguments]: a supervised run in the background; `launcher` is its process.
begin() {
    local name=$1
    shift
    tiny_exec=exec run_tiny "$name" $steps --restarts ${restarts:-3} "$@" > "$(basename "$name").log" 2>&1 &
    launcher=$!
}
rank_of() { ranks_of $launcher | sed -n "$(($1 + 1))p"; }
# through NAME [CODE]: the job has ended so, with nothing left of it.
through() {
    local name=$1 code
    wait $launcher
    code=$?
    [ $code -eq "${2:-0}" ] || { cat "$(basename "$name").log"; fail "$name: exit code $code, expected ${2:-0}"; }
    [ -z "$(ranks_of $launcher)" ] || fail "$name: processes are left"
}
same() {
    losses "$1" > losses.txt
    cmp whole.txt losses.txt || { diff whole.txt losses.txt | head -6; fail "$1: another trajectory"; }
}
logged() { grep -q -- "$2" "$1.log" || { cat "$1.log"; fail "$1: it does not say \"$2\""; }; }

# Killed at a step, and in the start: either rank.
for rank in 0 1; do
    name=killed$rank
    begin $name
    wait_for steps_done $name 25 || { cat $name.log; fail "$name: no steps"; }
    victim=$(rank_of $rank)
    old=$(ranks_of $launcher)
    kill -9 "$victim"
    again() { [ -n "$(comm -13 <(sort <<< "$old") <(ranks_of $launcher | sort))" ]; }
    wait_for again || { cat $name.log; fail "$name: no restart"; }
    for pid in $old; do [ ! -e "/proc/$pid" ] || fail "$name: process $pid of the old generation is left"; done
    through $name
    same $name
    logged $name "rank $rank (pid $victim) was killed by signal 9"
    logged $name "goodput .* 1 restart$"
    is $name "len(ended) == 2 and ended[0]['cause'] == 'process' and ended[0]['who'] == 'rank $rank'"
    is $name "events[-1]['event'] == 'end' and events[-1]['exit_code'] == 0 and events[-1]['restarts'] == 1"
    is $name "[e['generation'] for e in events if e['event'] == 'start'] == [1, 2]"
    # What each goes on from, whatever steps were done when the launcher looked: nothing, then a checkpoint.
    is $name "[e['step'] for e in events if e['event'] == 'training'][0] == 0"
    is $name "[e['step'] % 10 for e in events if e['event'] == 'training'] == [0, 0]"
    is $name "[e['step'] for e in events if e['event'] == 'training'][1] <= ended[0]['step']"
    seconds=$(python3 -c "
import json
e = [json.loads(l) for l in open('$name/events.jsonl')]
failed = next(x for x in e if x['event'] == 'ended')
again = next(x for x in e if x['event'] == 'training' and x['generation'] == 2)
print(round(again['time'] - failed['time'] + failed['seconds'], 2))")
    echo "$name: killed at a step, trained on after $seconds s"
done

# The folder is the launcher's between two generations, too.
tiny_exec=exec run_tiny held 100000 --restarts 3 > held.log 2>&1 &
launcher=$!
wait_for steps_done held 25 || { cat held.log; fail "held: no steps"; }
kill -9 "$(rank_of 1)"
until [ "$(grep -c '"event":"training"' held/events.jsonl)" -ge 2 ]; do
    [ -e /proc/$launcher ] || { cat held.log; fail "held: it ended"; }
    flock -n held/.launcher.lock true && fail "held: nobody holds the folder"
    sleep 0.01
done
kill -TERM $launcher
through held 75
flock -n held/.launcher.lock true || fail "held: the launcher has left its lock"
flock -F held/.launcher.lock sleep 60 &
holder=$!
sleep 0.2
refused "run.folder: held is in use by another run (pid $launcher on host" run_tiny held 300
refused "run.folder: held is in use by another run (pid $launcher on host" run_tiny held 300 --restarts 2
refused "held is in use by another run (pid" run_tiny held 300 --fresh
refused "held is in use by another run (pid" "$orrery" checkpoints prune held
refused "held is in use by another run (pid" "$orrery" checkpoints copy whole $steps --to held
kill $holder
wait $holder 2> /dev/null

# Stopped: found by its silence, and killed.
silence="--set run.silence_s=3"
begin stopped $silence
wait_for steps_done stopped 25 || { cat stopped.log; fail "stopped: no steps"; }
kill -STOP "$(rank_of 1)"
through stopped
same stopped
is stopped "len(ended) == 2 and ended[0]['cause'] == 'hang' and ended[0]['who'] == 'rank 1'"
is stopped "ended[0]['how'] == 'was stopped (SIGSTOP)'"

# All of them, or the only one: nobody is left who would miss them.
for ranks in 1 2; do
    name=stopped_all$ranks
    steps=100000 begin $name --set mesh.dp=$ranks $silence
    wait_for steps_done $name 25 || { cat $name.log; fail "$name: no steps"; }
    kill -STOP $(ranks_of $launcher)
    began_again() { [ "$(grep -c '"event":"training"' $name/events.jsonl)" -eq 2 ]; }
    patience=6000 wait_for began_again || { cat $name.log; fail "$name: no restart"; }
    kill -TERM $launcher
    through $name 75
    is $name "ended[0]['cause'] == 'hang' and ended[0]['how'] == 'was stopped (SIGSTOP)'"
    logged $name "all ranks of this host have been stopped (SIGSTOP) for 3 s"
done
# The last one, when the others have ended.
source_scripts=$source_root
cp -r "$source_root/scripts" fake-last
cat >> fake-last/gpt.lua <<'LUA'
if os.getenv("ORRERY_RANK") == "0" then os.execute("sleep 3; kill -STOP $PPID") end
LUA
mkdir last-root && mv fake-last last-root/scripts
source_root=$work/last-root
steps=5 begin stopped_last $silence --set 'lua.allow=["os"]' --set lua.library="$source_scripts/scripts"
source_root=$source_scripts
patience=6000 wait_for grep -q "all ranks of this host have been stopped" stopped_last.log ||
    { cat stopped_last.log; fail "stopped_last: nobody has seen it"; }
kill -TERM $launcher
wait $launcher && fail "stopped_last: exit code 0"
# Then a signal ends them, too.
steps=100000 begin stopped_asked $silence
wait_for steps_done stopped_asked 25 || { cat stopped_asked.log; fail "stopped_asked: no steps"; }
kill -STOP $(ranks_of $launcher)
kill -TERM $launcher
ends() { [ ! -e /proc/$launcher ] || [ "$(cut -d' ' -f3 /proc/$launcher/stat)" = Z ]; }
patience=6000 wait_for ends || { cat stopped_asked.log; fail "stopped_asked: the launcher waits for ever"; }
wait $launcher && fail "stopped_asked: exit code 0"
# With the silence that is the default.
tiny_exec=exec run_tiny stopped_alone 100000 > stopped_alone.log 2>&1 &
launcher=$!
wait_for steps_done stopped_alone 25 || { cat stopped_alone.log; fail "stopped_alone: no steps"; }
kill -STOP $(ranks_of $launcher)
kill -TERM $launcher
patience=6000 wait_for ends || { cat stopped_alone.log; fail "stopped_alone: the launcher waits for ever"; }
wait $launcher && fail "stopped_alone: exit code 0"
logged stopped_alone "all ranks of this host have been stopped (SIGSTOP) for 10 s; they are ended"

# A rank that leaves with 0 before its end.
mkdir -p fake/scripts
# with_lua: gpt.lua with standard input before its training; `begin` takes that one from here on.
with_lua() {
    cat > before.lua
    sed '/^run:train(data)/{
        e cat before.lua
    }' "$source_scripts/scripts/gpt.lua" > fake/scripts/gpt.lua
    cmp -s fake/scripts/gpt.lua "$source_scripts/scripts/gpt.lua" && fail "the script has no training to go before"
    source_root=$work/fake
}
with_lua <<'LUA'
if not io.open("marker") and os.getenv("ORRERY_RANK") == "1" then io.open("marker", "w"):close() os.exit(0) end
LUA
begin left --set 'lua.allow=["io","os"]' --set lua.library="$source_scripts/scripts"
through left
source_root=$source_scripts
same left
logged left "rank 1 (pid .*) ended with exit code 0 before its end"
is left "len(ended) == 2 and ended[0]['cause'] == 'early end' and ended[0]['who'] == 'rank 1'"

with_lua <<'LUA'
if not io.open("once") and os.getenv("ORRERY_RANK") == "1" then
    io.open("once", "w"):close()
    os.execute("kill -9 $PPID")
end
LUA
begin early --set 'lua.allow=["io","os"]' --set lua.library="$source_scripts/scripts"
through early
source_root=$source_scripts
same early
is early "len(ended) == 2 and ended[0]['cause'] == 'process' and ended[0]['step'] == 0"

# Killed at the same step each time: the second time is the last.
with_lua <<'LUA'
if os.getenv("ORRERY_RANK") == "1" then os.execute("kill -9 $PPID") end
LUA
begin again --set 'lua.allow=["io","os"]' --set lua.library="$source_scripts/scripts"
through again 1
logged again "for the second time: a restart does not help"
is again "len(ended) == 2 and all(e['cause'] == 'process' and e['who'] == 'rank 1' for e in ended)"
# Another rank each time: no two are alike, and the budget is what ends it.
with_lua <<'LUA'
local generation, rank = os.getenv("ORRERY_GENERATION"), os.getenv("ORRERY_RANK")
if rank and generation % 2 == rank % 2 then os.execute("kill -9 $PPID") end
LUA
restarts=2 begin budget --set 'lua.allow=["io","os"]' --set lua.library="$source_scripts/scripts"
through budget 1
source_root=$source_scripts
logged budget "2 restarts after a failure of this kind (process) brought no step beyond 0"
is budget "len(ended) == 3 and events[-1]['restarts'] == 2"

# Killed by the system, which has no more memory for it.
group=/sys/fs/cgroup/memory/orrery-$$
if mkdir $group 2> /dev/null && echo 100M > $group/memory.limit_in_bytes; then
    with_lua <<LUA
if not io.open("hungry") and os.getenv("ORRERY_RANK") == "1" then
    io.open("hungry", "w"):close()
    os.execute("echo \$PPID > $group/cgroup.procs")
    eaten = string.rep("x", 300 << 20)
end
LUA
    begin memory --set 'lua.allow=["io","os"]' --set lua.library="$source_scripts/scripts"
    through memory
    source_root=$source_scripts
    rmdir $group
    same memory
    is memory "len(ended) == 2 and ended[0]['cause'] == 'memory' and ended[0]['who'] == 'rank 1'"
else
    echo "skipped: memory (no cgroup of memory to make here)"
fi

# A disk that does not answer: named, and gone on with once it does.
frozen() { fsfreeze -f disk 2> frozen.err; }
mkdir disk
if [ "$(id -u)" -eq 0 ] && truncate -s 100M disk.img && mkfs.ext4 -q disk.img && mount -o loop disk.img disk; then
    unmounted() {
        fsfreeze -u disk 2> /dev/null
        jobs -p | xargs -r kill -9 2> /dev/null
        umount disk 2> /dev/null
        rm -rf "$work"
    }
    trap unmounted EXIT
    begin disk/stalled --set run.disk_timeout_s=1
    wait_for steps_done disk/stalled 15 || { cat stalled.log; fail "stalled: no steps"; }
    frozen || fail "stalled: $(cat frozen.err)"
    wait_for grep -q "has waited for a disk for 1 s" stalled.log
    sleep 1
    fsfreeze -u disk
    through disk/stalled
    same disk/stalled
    is disk/stalled "len(ended) == 2 and ended[0]['cause'] == 'storage'"
    umount disk
else
    echo "skipped: a stalled disk (no file system to mount here)"
fi

# Preemption, and a signal to the launcher: no failure, and no restart.
for to in rank launcher; do
    begin preempted_$to
    wait_for steps_done preempted_$to 15 || { cat preempted_$to.log; fail "preempted_$to: no steps"; }
    kill -TERM "$([ $to = rank ] && rank_of 1 || echo $launcher)"
    through preempted_$to 75
    is preempted_$to "len(ended) == 1 and ended[0]['cause'] == 'stopped' and events[-1]['restarts'] == 0"
    run_tiny preempted_$to $steps --restarts 3 > preempted_$to.log 2>&1 || fail "preempted_$to: resumed"
    same preempted_$to
done
steps=100000 begin interrupted
wait_for steps_done interrupted 15 || { cat interrupted.log; fail "interrupted: no steps"; }
kill -INT $launcher
through interrupted 130
python3 -c "
import json
r = json.load(open('interrupted/run.json'))
assert r['exit_code'] == 130 and 'signal 2' in r['why'], r" ||
    fail "interrupted: run.json"

# A mistake is not tried again; nor does a diverged loss come back from the same step.
exits 2 mistake run_tiny mistake $steps --restarts 3 --set checkpoint.load=nowhere.safetensors
! grep -q "starts again" mistake.err || fail "mistake: started again"

# What the launcher itself fails of is an end, too.
begin taken
wait_for steps_done taken 25 || { cat taken.log; fail "taken: no steps"; }
touch taken/checkpoints/generation-00000002
kill -9 "$(rank_of 1)"
through taken 1
logged taken "generation 2 of the job's folder is taken"
is taken "events[-1]['event'] == 'end' and events[-1]['exit_code'] == 1 and 'is taken' in events[-1]['why']"

# A folder that is another one by now: no run from step 1 in silence.
steps=100000 begin moved --set checkpoint.every_steps=0
wait_for steps_done moved 25 || { cat moved.log; fail "moved: no steps"; }
mv moved elsewhere
kill -9 "$(rank_of 1)"
through moved 1
logged moved "moved/checkpoints has no generation 1 of this job any more: it was removed, moved away or unmounted"
steps=100000 begin moved_saving
wait_for steps_done moved_saving 25 || { cat moved_saving.log; fail "moved_saving: no steps"; }
mv moved_saving elsewhere_saving
through moved_saving 1
logged moved_saving "moved_saving/checkpoints has no generation 1 of this job any more"
[ -z "$(ls -d moved_saving/checkpoints/step-* 2> /dev/null)" ] || fail "moved_saving: $(ls moved_saving/checkpoints)"
mkdir -p far/checkpoints && touch far/checkpoints/generation-9223372036854775807
exits 1 far run_tiny far 5 --restarts 1
grep -q "generation 9223372036854775807 of the job was taken, behind which there is none" far.err ||
    { cat far.err; fail "the last generation"; }

# One rank has a launcher, too.
steps=6000 begin alone --set mesh.dp=1 --set run.threads_per_rank=1
wait_for steps_done alone 15 || { cat alone.log; fail "alone: no steps"; }
kill -9 "$(rank_of 0)"
through alone
is alone "len(ended) == 2 and ended[0]['cause'] == 'process'"

refused "--restarts: |-1|0 to 1000" run_tiny bad 5 --restarts -1
refused "--restarts: |99999999999999999999|0 to 1000" run_tiny bad 5 --restarts 99999999999999999999
refused "--restarts 2|torchrun has started the ranks|leave --restarts out" as_rank 0 2 29999 $orrery run \
    "$source_root/scripts/gpt.lua" --restarts 2
refused "--restarts 2|threads|another transport" run_tiny bad 5 --restarts 2 --set run.transport=threads
refused "run.resume = \"never\"|--restarts 2|leave one of them out" run_tiny bad 5 --restarts 2 --set run.resume=never
refused "run.store = \"memory\" and --restarts 2|end with the ranks|posix" run_tiny bad 5 --restarts 2 \
    --set run.store=memory
mkdir -p folder/events.jsonl
exits 1 folder run_tiny folder 5 --restarts 1
grep -q "move away what is there" folder.err || { cat folder.err; fail "a folder as events.jsonl"; }
echo "1 passed, 0 failed"
