#!/usr/bin/env bash
# Where the output of ranks goes: the terminal, redirected output, logs/gG-rankR.txt of the run's folder; what is left
# of a rank, a launcher and a disk that fail; the progress line of a terminal.
source "$(dirname "$0")/lib.sh"

# noisy FILE COMMANDS: scripts/gpt.lua, before which each rank (not the launcher) runs shell commands, with $rank.
noisy() {
    {
        echo 'local rank = os.getenv("ORRERY_RANK") or os.getenv("RANK")'
        echo "if rank then os.execute(\"rank=\" .. rank .. \"; \" .. [==[$2]==]) end"
        cat "$source_root/scripts/gpt.lua"
    } > "$1"
}
run_noisy() { tiny_script=$1 run_tiny "${@:2}" --set 'lua.allow=["os"]' --set run.threads_per_rank=1; }
has() { grep -qF -- "$2" "$1" || { cat "$1"; fail "$1 lacks \"$2\""; }; }
lacks() { ! grep -qF -- "$2" "$1" || { cat "$1"; fail "$1 has \"$2\""; }; }
printed() { printf 'out of %s\n' "$1"; }

# Redirected: rank 0's output, no progress line, no configuration; the logs have the output of both.
noisy prints.lua 'echo out of $rank; echo err of $rank >&2; printf "part of $rank"; sleep 0.1; echo " and end of $rank"'
run_noisy prints.lua quiet 3 > quiet.out 2> quiet.err || { cat quiet.out quiet.err; fail "two ranks"; }
has quiet.out "$(printed 0)"
has quiet.err "err of 0"
for file in quiet.out quiet.err; do lacks $file "of 1"; done
! grep -q $'[\r\033]' quiet.out quiet.err || fail "a progress line in redirected output"
lacks quiet.out "[train]"
has quiet.out "quiet: configuration in config.toml, output of ranks in logs/"
sort quiet.out quiet.err > quiet.all
sort quiet/logs/g1-rank0.txt | diff - quiet.all || fail "the log of rank 0 is not its output"
[ "$(cat quiet/logs/g1-rank1.txt)" = "$(printf 'out of 1\nerr of 1\npart of 1 and end of 1')" ] ||
    { cat quiet/logs/g1-rank1.txt; fail "the log of rank 1"; }
[ "$(ls quiet/logs | xargs)" = "g1-rank0.txt g1-rank1.txt" ] || fail "the logs are $(ls quiet/logs)"

# Of all ranks, each line with its rank; a resumed run has the logs of both generations, and --verbose the settings.
run_noisy prints.lua quiet 4 --set run.output=all --verbose > all.out 2> all.err || { cat all.out all.err; fail "all"; }
for line in "out of 0" "[rank 1] out of 1" "[rank 1] part of 1 and end of 1"; do
    grep -qxF "$line" all.out || { cat all.out; fail "no line \"$line\""; }
done
grep -qxF "[rank 1] err of 1" all.err || { cat all.err; fail "no stderr of rank 1"; }
has all.out "[train]"
grep -qxF "out of 1" quiet/logs/g2-rank1.txt || fail "the log of the second start"
[ -s quiet/logs/g1-rank1.txt ] || fail "the second start removed the logs of the first"

# One rank in the launcher's process, and ranks that are threads of it.
run_tiny alone 3 --set mesh.dp=1 > alone.log 2>&1 || { cat alone.log; fail "one rank"; }
cmp alone.log alone/logs/g1-rank0.txt || fail "one rank: its log is not its output"
run_tiny threads 3 --set run.transport=threads --set run.threads_per_rank=1 --set device.cpu.reference=true \
    > threads.log 2>&1 || { cat threads.log; fail "threads"; }
cmp threads.log threads/logs/g1-rank0.txt || fail "threads: the log is not their output"

# A rank that is killed: the end of its stderr is on the terminal, all of its output in its log.
noisy killed.lua 'for i in $(seq 30); do echo line $i of $rank >&2; done; [ $rank = 0 ] || kill -9 $PPID; sleep 60'
exits 1 killed run_noisy killed.lua killed 3
has killed.err "orrery: rank 1 (pid"
has killed.err "was killed by signal 9"
[ "$(grep 'of 1$' killed.err)" = "$(seq 11 30 | sed 's/.*/[rank 1] line & of 1/')" ] ||
    { cat killed.err; fail "the last 20 lines of rank 1 are not shown"; }
has killed.err "these are the last 20 lines of rank 1; all are in killed/logs"
noisy one_fails.lua '[ $rank = 2 ] || { echo line of $rank >&2; exit; }; sleep 1; kill -9 $PPID'
exits 1 one_fails run_noisy one_fails.lua one_fails 3 --set mesh.dp=4 --set train.sequences_per_step=8
has one_fails.err "was killed by signal 9"
[ "$(grep -c 'line of [13]' one_fails.err)" -le 1 ] ||
    { cat one_fails.err; fail "the last lines of each rank that ends because of another one"; }
[ "$(cat killed/logs/g0-rank1.txt)" = "$(seq 30 | sed 's/.*/line & of 1/')" ] ||
    { ls killed/logs; fail "the log of a rank that was killed before it had a generation"; }
exits 1 restarts run_noisy killed.lua restarts 3 --restarts 1
for generation in 1 2; do
    [ "$(wc -l < restarts/logs/g$generation-rank1.txt)" -eq 30 ] ||
        { cat restarts.err; ls restarts/logs; fail "generation $generation: no log of the killed rank"; }
done

# A launcher that is killed: its ranks end and say so, and what they printed before is there.
noisy waits.lua 'echo begins $rank; sleep 2'
tiny_script=waits.lua tiny_exec=exec run_tiny orphans 100000 --set 'lua.allow=["os"]' --set run.threads_per_rank=1 \
    > orphans.log 2>&1 &
launcher=$!
wait_for steps_done orphans 3 || { cat orphans.log; fail "no steps"; }
kill -9 $launcher
wait $launcher 2> /dev/null
for rank in 0 1; do
    wait_for grep -q "this rank exits because its launcher has exited" orphans/logs/g1-rank$rank.txt ||
        { cat orphans.log; fail "rank $rank does not say why it ends"; }
    has orphans/logs/g1-rank$rank.txt "begins $rank"
done

# Under an engine, which starts the ranks itself.
port=$(free_port)
tiny_exec="as_rank 1 2 $port" run_noisy prints.lua engine 3 > engine1.out 2> engine1.err &
tiny_exec="as_rank 0 2 $port" run_noisy prints.lua engine 3 > engine0.out 2> engine0.err ||
    { cat engine0.out engine0.err engine1.err; fail "an engine's ranks"; }
wait $! || { cat engine1.out engine1.err; fail "an engine's rank 1"; }
has engine0.out "out of 0"
[ ! -s engine1.out ] && [ ! -s engine1.err ] || { cat engine1.out engine1.err; fail "rank 1 of an engine is shown"; }
has engine/logs/g1-rank0.txt "err of 0"
has engine/logs/g1-rank1.txt " and end of 1"

# A script that does not train has no log: the terminal has the output of all ranks.
sed '/^run:train(data)/,$d' prints.lua > untrained.lua
run_noisy untrained.lua untrained 3 > untrained.out 2> untrained.err || { cat untrained.err; fail "no training"; }
grep -qxF "[rank 1] out of 1" untrained.out || { cat untrained.out; fail "output of rank 1 without a log is lost"; }
grep -qxF "[rank 1] err of 1" untrained.err || { cat untrained.err; fail "errors of rank 1 without a log are lost"; }
port=$(free_port)
tiny_exec="as_rank 1 2 $port" run_noisy untrained.lua untrained 3 > engine1.out 2> engine1.err &
tiny_exec="as_rank 0 2 $port" run_noisy untrained.lua untrained 3 > engine0.out 2>&1 ||
    { cat engine0.out; fail "an engine's ranks, no training"; }
wait $! || { cat engine1.out engine1.err; fail "an engine's rank 1, no training"; }
grep -qxF "[rank 1] out of 1" engine1.out || { cat engine1.out; fail "output of an engine's rank 1 is lost"; }
grep -qxF "[rank 1] err of 1" engine1.err || { cat engine1.err; fail "errors of an engine's rank 1 are lost"; }

# More than a log takes: 39 MB of each rank. The first and the last 8 MiB are there.
noisy floods.lua 'seq 5000000'
run_noisy floods.lua flood 3 > flood.log 2>&1 || { tail -5 flood.log; fail "much output"; }
for rank in 0 1; do
    log=flood/logs/g1-rank$rank.txt
    [ "$(stat -c %s $log)" -eq $((16 << 20)) ] || fail "$log has $(stat -c %s $log) bytes"
    seq 5000000 | head -c $((8 << 20)) | cmp - <(head -c $((8 << 20)) $log) || fail "$log: not the first 8 MiB"
    grep -aq '^\[orrery: [0-9]* bytes of output are left out here\]$' $log || fail "$log does not say what is left out"
done
seq 5000000 | tail -c 8000000 | cmp - <(tail -c 8000000 flood/logs/g1-rank1.txt) || fail "not the last 8 MiB"
[ "$(grep -c '^[0-9]*$' flood.log)" -eq 5000000 ] || fail "the terminal lacks output of rank 0"

# A reader that is gone, and a full disk of the logs: the run goes on.
{ run_noisy prints.lua gone 3 2>&1; echo $? > gone.code; } | head -1 > gone.log
[ "$(cat gone.code)" = 0 ] || fail "a reader that is gone ends the run"
wait_for grep -qs "evaluation after step 3" gone/logs/g1-rank0.txt || fail "the log without a reader of the terminal"
if unshare -rm sh -c 'mkdir -p full/logs && mount -t tmpfs -o size=64k none full/logs' 2> /dev/null; then
    noisy fills.lua 'seq 100000'
    export -f run_tiny run_noisy
    export source_root orrery
    unshare -rm bash -c 'mount -t tmpfs -o size=64k none full/logs && run_noisy fills.lua full 3' > full.log 2>&1 ||
        { tail -5 full.log; fail "a full disk of the logs ends the run"; }
    has full.log "orrery: cannot write full/logs/g"
    has full.log "No space left on device; the run continues"
    has full.log "evaluation after step 3"
else
    echo "skipped: a full disk, since this user may not mount one"
fi

# A terminal: no line is torn, and the progress line is removed in the end.
if command -v python3 > /dev/null; then
    noisy slow.lua 'echo "in a terminal $rank"'
    export -f run_tiny run_noisy
    export source_root orrery
    for term in xterm dumb; do
        TERM=$term python3 -B "$source_root/tests/jobs/terminal.py" 50 bash -c \
            "run_noisy slow.lua $term 40 --set run.output=all --set train.log_every=10" > $term.txt ||
            { cat $term.txt; fail "in a terminal ($term)"; }
        has $term.txt "in a terminal 0"
        has $term.txt "[rank 1] in a terminal 1"
        grep -q "^ *40  " $term.txt || { cat $term.txt; fail "$term: no line of step 40"; }
    done
    grep -q "^progress: step [0-9]* of 40, [0-9]*:[0-9]* left, [0-9]* tok/s, lo" xterm.txt ||
        { cat xterm.txt; fail "no progress line of 49 columns"; }
    lacks dumb.txt "progress:"
else
    echo "skipped: a terminal, since python3 is not here"
fi
echo "1 passed, 0 failed"
