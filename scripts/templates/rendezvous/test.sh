#!/bin/sh
# Two ranks that meet by the plugin end where two that meet over TCP end, and the loss of one ends the other.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
. "$(dirname "$0")/harness.sh"
for way in tcp sundial; do train $way --set mesh.dp=2 --set run.rendezvous=$way; done
[ -n "$(last_loss sundial)" ] || { cat "$work/log.txt"; fail "no loss"; }
[ "$(last_loss sundial)" = "$(last_loss tcp)" ] ||
    fail "sundial ends with $(last_loss sundial), tcp with $(last_loss tcp)"
loss=$(last_loss sundial)
do_it run sundial --set mesh.dp=2 --set run.rendezvous=sundial --set train.steps=1000000 > "$work/killed.txt" 2>&1 &
launcher=$!
until [ "$(wc -l < "$work/sundial/metrics.jsonl")" -gt 20 ]; do sleep 0.1; done
kill -KILL "$(pgrep -P "$(pgrep -P "$launcher")" | tail -n 1)"    # a rank, below the launcher below the function
if wait "$launcher"; then fail "a killed rank is no failure"; fi
grep -q "was killed by signal 9" "$work/killed.txt" || { cat "$work/killed.txt"; exit 1; }
echo "ok: both ways end with the loss $loss, and a killed rank ends the run"
