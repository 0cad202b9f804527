#!/bin/sh
# A job that the engine starts ends where two ranks that orrery starts end, and its folder names it.
# usage: test.sh ORRERY [FOLDER OF PLUGINS]
. "$(dirname "$0")/harness.sh"
train orrery --set mesh.dp=2
must submit sundial --set mesh.dp=2 --engine sundial
grep -q '"engine": "sundial"' "$work/sundial/job.json" || { cat "$work/log.txt"; fail "job.json does not name it"; }
tries=0
until grep -q '"ended": true' "$work/sundial/job.json"; do
    tries=$((tries + 1))
    [ $tries -le 600 ] || { cat "$work/sundial/sundial.txt"; fail "the job does not end"; }
    sleep 0.1
done
[ "$(last_loss sundial)" = "$(last_loss orrery)" ] ||
    fail "sundial ends with $(last_loss sundial), orrery with $(last_loss orrery)"
! do_it submit wide --set mesh.dp=2 --set submit.nodes=2 --set run.transport=gloo --engine sundial \
    > "$work/wrong.txt" 2>&1 || fail "a job of two nodes is taken"
grep -q "has one node, and the job needs 2" "$work/wrong.txt" || { cat "$work/wrong.txt"; exit 1; }
echo "ok: both end with the loss $(last_loss orrery)"
