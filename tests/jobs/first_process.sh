#!/usr/bin/env bash
# `orrery` as process 1 of a PID namespace, as in a container: it reaps processes that it did not start, forwards
# signals that process 1 would not get, and exits with the code of its command.
source "$(dirname "$0")/lib.sh"
unshare --pid --fork --mount-proc true 2> unshare.err ||
    { echo "skipped: no PID namespace here: $(cat unshare.err)"; exit 77; }
orrery="unshare --pid --fork --kill-child --mount-proc $orrery"

# A script leaves a process without a parent: it becomes a child of process 1, and goes when it has ended.
waits='os.execute([[sh -c "until [ -e ends ]; do sleep 0.05; done" &]])'
sed "/^run:train(data)/i $waits" "$source_root/scripts/gpt.lua" > leaves.lua
tiny_exec=exec tiny_script=leaves.lua run_tiny first 100000 --set 'lua.allow=["io","os"]' \
    --set lua.library="$source_root/scripts" > first.log 2>&1 &
outer=$!
wait_for steps_done first 3 || { cat first.log; fail "no steps"; }
first=$(ranks_of $outer)
[ "$(awk '/^NSpid:/ { print $NF }' /proc/"$first"/status)" = 1 ] || fail "process $first is not the first one"
# Children of process 1 but the one that collects output.
children() { for child in $(ranks_of "$first"); do cat /proc/"$child"/comm; done | grep -vc '^orrery-output$'; }
[ "$(children)" -gt 1 ] || { ps -ef --forest; fail "the script has left no process: this shows nothing"; }
touch ends
alone() { [ "$(children)" -eq 1 ]; }
wait_for alone || { ps -o pid,ppid,stat,comm --ppid "$first"; fail "orphans are not reaped"; }
kill -TERM "$first"
wait $outer
code=$?
[ $code -eq 75 ] || { tail -20 first.log; fail "exit code $code after SIGTERM, expected 75"; }
grep -q "the checkpoint is committed" first.log || { tail -20 first.log; fail "no checkpoint after SIGTERM"; }

# A command that does not handle the signal.
mkfifo text.fifo && exec 9<> text.fifo
(exec $orrery tokenize - -o tokens) <&9 > tokenize.log 2>&1 &
outer=$!
reads() { first=$(ranks_of $outer) && [ -n "$first" ] && alone; }
wait_for reads || { cat tokenize.log; fail "orrery tokenize does not start"; }
kill -TERM "$first"
wait $outer
code=$?
[ $code -eq 143 ] || { cat tokenize.log; fail "exit code $code of a command after SIGTERM, expected 143"; }

exits 0 version $orrery --version
exits 2 wrong $orrery run no-such-script.lua

tiny_exec=exec run_tiny killed 1000000 > killed.log 2>&1 &
outer=$!
wait_for steps_done killed 3 || { cat killed.log; fail "no steps"; }
command=$(pgrep -P "$(ranks_of $outer)" -x orrery)  # not the one that collects output
kill -9 "$(ranks_of "$command" | tail -n 1)" || fail "no rank"
wait $outer
code=$?
[ $code -eq 1 ] || { tail -20 killed.log; fail "exit code $code after a rank was killed, expected 1"; }

# A command that crashes while its output is not read: all that it printed before is there.
print='io.stdout:write(("x"):rep(100000), "\\nlast words\\n") io.stdout:flush()'
crash="$print os.execute(\"touch printed; kill -9 \$PPID\")"
sed "/^run:train(data)/i $crash" "$source_root/scripts/gpt.lua" > crashes.lua
tiny_script=crashes.lua run_tiny crashes 3 --set mesh.dp=1 --set 'lua.allow=["io","os"]' \
    --set lua.library="$source_root/scripts" 2>&1 | { wait_for test -e printed; sleep 1; cat; } > crashes.log
code=${PIPESTATUS[0]}
[ $code -eq 137 ] || { tail -c 300 crashes.log; fail "exit code $code of a command that was killed, expected 137"; }
grep -q "^last words" crashes.log || { tail -c 300 crashes.log; fail "the output before a crash is lost"; }
echo "1 passed, 0 failed"
