#!/bin/sh
# Two ranks train as one does, by messages from rank to rank; verify finds a ring that rolls by the wrong number, and
# one that leaves a block out, at the output of attention.
# usage: test.sh ORRERY
. "$(dirname "$0")/harness.sh"
must check run --set mesh.cp=2
! grep -q "IMPLICIT" "$work/log.txt" || { cat "$work/log.txt"; fail "a value is gathered that no mark asks for"; }
for ranks in 1 2; do train run$ranks --set mesh.cp=$ranks; done
agree run1 run2 5 "two ranks do not train as one does"
must verify run --set mesh.cp=2

# wrong WHAT OLD NEW: verify fails and names attention, where sundial.lua has NEW in place of OLD.
wrong() {
    mkdir "$work/wrong"
    cp "$here"/*.lua "$work/wrong"
    sed "s|$2|$3|" "$here/sundial.lua" > "$work/wrong/sundial.lua"
    ! cmp -s "$here/sundial.lua" "$work/wrong/sundial.lua" || fail "there is no $2 in sundial.lua"
    here=$work/wrong do_it verify run --set mesh.cp=2 > "$work/log.txt" 2>&1 && fail "verify accepts $1"
    grep -q "replaces  attention %" "$work/log.txt" ||
        { cat "$work/log.txt"; fail "$1: verify does not name the output of attention"; }
    rm -r "$work/wrong"
}
wrong "a roll by two blocks" "{ dim = 2, by = block })\$" "{ dim = 2, by = 2 * block })"
wrong "a ring that leaves the first block out" "if step == 1 then" "if step <= 2 then"
echo "ok: losses of one and of two ranks agree; verify finds a wrong roll and a missing block"
