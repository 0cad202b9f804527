#!/usr/bin/env bash
# Ranks of one host over ucx listen nowhere; and where UCX finds no way, the message says between whom and what to set.
source "$(dirname "$0")/lib.sh"
[ -e "$(dirname "$orrery")/plugins/liborrery_transport_ucx.so" ] || { echo "skipped: no transport ucx"; exit 77; }
command -v ss > /dev/null || { echo "skipped: no ss, which lists who listens"; exit 77; }

# listening PID: the TCP ports on which a process listens.
listening() { ss -Hltnp | grep "pid=$1,"; }

tiny_exec=exec run_tiny local 100000 --set run.transport=ucx --set checkpoint.every_steps=0 > local.log 2>&1 &
launcher=$!
wait_for steps_done local 3 || { cat local.log; fail "two ranks over ucx"; }
listening $launcher > /dev/null || fail "the launcher is not seen to hold the rendezvous: no test"
for rank in $(ranks_of $launcher); do
    listening "$rank" && fail "a rank that has all others beside it listens"
done
kill -INT $launcher
wait $launcher
[ $? -eq 130 ] || { cat local.log; fail "the job did not end in order"; }
echo "two ranks of one host over ucx: none of them listens"

run_tiny apart 4 --set run.transport=ucx --set transport.ucx.transports=self > apart.log 2>&1 && fail "joined over self"
grep -qE "rank [01] cannot reach rank [01] on host .* over self.*: .*transport.ucx.transports .*ucx_info" apart.log ||
    { cat apart.log; fail "no word of ranks, transports and keys"; }
echo "no way between two ranks: $(grep -m1 'cannot reach' apart.log | cut -c1-200)"
echo "1 passed, 0 failed"
