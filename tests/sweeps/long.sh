#!/bin/sh
# All sweeps at their full size; the table goes to the file that ORRERY_LONG names. usage: long.sh FOLDER_OF_PROGRAMS
# ORRERY
set -eu
here=$(dirname "$0") programs=$1 orrery=$2
: > "$ORRERY_LONG"
run() {
    echo "== $1" >> "$ORRERY_LONG"
    shift
    "$@" >> "$ORRERY_LONG" 2>&1 || { tail -n 5 "$ORRERY_LONG"; exit 1; }
}
run "crash states" "$here/crash_states.sh" "$programs" 20000
run "crash states, steps removed where they are" "$here/crash_states.sh" "$programs" 20000 stay
run "lower layers" "$here/lower_layers.sh" "$programs" 499 overlay overlay_ext4 overlay_xfs tmpfs ext4 xfs btrfs
run "what is retained" "$here/retained.sh" "${programs%/tests}/unit_tests" 37 \
    overlay overlay_ext4 overlay_xfs tmpfs ext4 xfs btrfs
run "faults" "$here/faults.sh" "$programs" 5
run "every byte" "$programs/sweep_every_byte" "$programs/sweep_every_byte.long" 1
run "power cuts" "$here/power_cuts.sh" "$programs" 40 ordered writeback xfs btrfs
run "networks" "$here/networks.sh" "$orrery"
cat "$ORRERY_LONG"
