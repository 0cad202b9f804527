#!/usr/bin/env bash
# `orrery run --restarts N`: the run's folder is the launcher's all the time, and options that cannot be are refused.
# drill.sh has what becomes of a job when something is done to it.
source "$(dirname "$0")/lib.sh"

# The folder is the launcher's between two generations, too.
tiny_exec=exec run_tiny held 100000 --restarts 3 > held.log 2>&1 &
launcher=$!
wait_for steps_done held 25 || { cat held.log; fail "held: no steps"; }
kill -9 "$(ranks_of $launcher | sed -n 2p)"
until [ "$(grep -c '"event":"training"' held/events.jsonl)" -ge 2 ]; do
    [ -e /proc/$launcher ] || { cat held.log; fail "held: it ended"; }
    flock -n held/.launcher.lock true && fail "held: nobody holds the folder"
    sleep 0.01
done
kill -TERM $launcher
wait $launcher
code=$?
[ $code -eq 75 ] || { cat held.log; fail "held: exit code $code, expected 75"; }
flock -n held/.launcher.lock true || fail "held: the launcher has left its lock"
flock -F held/.launcher.lock sleep 60 &
holder=$!
sleep 0.2
refused "run.folder: held is in use by another run (pid $launcher on host" run_tiny held 300
refused "run.folder: held is in use by another run (pid $launcher on host" run_tiny held 300 --restarts 2
refused "held is in use by another run (pid" run_tiny held 300 --fresh
refused "held is in use by another run (pid" "$orrery" checkpoints prune held
run_tiny whole 10 > whole.log 2>&1 || { cat whole.log; fail "a run to copy from"; }
refused "held is in use by another run (pid" "$orrery" checkpoints copy whole 10 --to held
kill $holder
wait $holder 2> /dev/null

# A mistake is not tried again.
exits 2 mistake run_tiny mistake 5 --restarts 3 --set checkpoint.load=nowhere.safetensors
! grep -q "starts again" mistake.err || fail "mistake: started again"

mkdir -p far/checkpoints && touch far/checkpoints/generation-9223372036854775807
exits 1 far run_tiny far 5 --restarts 1
grep -q "has a claim of generation 9223372036854775807 of the job" far.err ||
    { cat far.err; fail "the last generation"; }
mkdir -p folder/events.jsonl
exits 1 folder run_tiny folder 5 --restarts 1
grep -q "move away what is there" folder.err || { cat folder.err; fail "a folder as events.jsonl"; }

refused "--restarts: |-1|0 to 1000" run_tiny bad 5 --restarts -1
refused "--restarts: |99999999999999999999|0 to 1000" run_tiny bad 5 --restarts 99999999999999999999
refused "--restarts 2|torchrun started 2 tasks, 2 of them on this host|leave --restarts out" as_rank 0 2 29999 $orrery run \
    "$source_root/scripts/gpt.lua" --restarts 2
refused "--restarts 2|threads|another transport" run_tiny bad 5 --restarts 2 --set run.transport=threads
refused "run.resume = \"never\"|--restarts 2|leave one of them out" run_tiny bad 5 --restarts 2 --set run.resume=never
refused "run.store = \"memory\" and --restarts 2|lost when the ranks exit|posix" run_tiny bad 5 --restarts 2 \
    --set run.store=memory
export ORRERY_TOKEN=a-secret-of-all-nodes
refused "--spares 1|one node|--nodes of 2 or more" run_tiny bad 5 --spares 1 --restarts 2
refused "--spares 1|no --restarts" run_tiny bad 5 --spares 1 --nodes 2 --node-rank 0 --rendezvous 10.77.1.1:29871
refused "--node-rank 3 of --nodes 2 and --spares 1: expected 0 to 2" run_tiny bad 5 --spares 1 --restarts 2 --nodes 2 \
    --node-rank 3 --rendezvous 10.77.1.1:29871
refused "--wait-node|0: expected a number from 1" run_tiny bad 5 --restarts 2 --wait-node 0
refused "--wait-node requires --restarts" run_tiny bad 5 --wait-node 10
echo "1 passed, 0 failed"
