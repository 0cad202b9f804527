#!/bin/sh
# Two ranks that the launcher starts end where two that orrery starts end, and a variable that is wrong is named.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
. "$(dirname "$0")/harness.sh"
# Such a launcher gives the same command to each rank, with its place in the environment.
rank() { MY_JOB="$work" MY_RANK=$1 MY_RANKS=2 do_it run sundial --set mesh.dp=2; }
train orrery --set mesh.dp=2
rank 1 > "$work/other.txt" 2>&1 & other=$!
rank 0 > "$work/log.txt" 2>&1 || { cat "$work/log.txt" "$work/other.txt"; exit 1; }
wait "$other" || { cat "$work/other.txt"; exit 1; }
[ -n "$(last_loss sundial)" ] || { cat "$work/log.txt"; fail "no loss"; }
[ "$(last_loss sundial)" = "$(last_loss orrery)" ] ||
    fail "sundial ends with $(last_loss sundial), orrery with $(last_loss orrery)"
if rank two > "$work/wrong.txt" 2>&1; then fail "a rank that is no number is taken"; fi
grep -q "MY_RANK=two: expected an integer" "$work/wrong.txt" || { cat "$work/wrong.txt"; exit 1; }
echo "ok: both end with the loss $(last_loss sundial)"
