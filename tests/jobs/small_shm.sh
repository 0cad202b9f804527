#!/usr/bin/env bash
# A /dev/shm that is too small for UCX, as containers have it, is named with what to do; tcp needs none.
source "$(dirname "$0")/lib.sh"
[ -e "$(dirname "$orrery")/plugins/liborrery_transport_ucx.so" ] || { echo "skipped: no ucx"; exit 77; }
unshare -m true 2> /dev/null || { echo "skipped: no mounts of its own"; exit 77; }
# small COMMAND...: where /dev/shm has one MiB.
small() { unshare -m bash -c 'mount -t tmpfs -o size=1m tmpfs /dev/shm && "$@"' small "$@"; }
small true 2> /dev/null || { echo "skipped: /dev/shm cannot be replaced"; exit 77; }
export source_root orrery
export -f run_tiny
small bash -c 'run_tiny ucx 3 --set run.transport=ucx' > ucx.log 2>&1
[ $? -eq 1 ] || fail "it fits in one MiB, or ends with another code than 1"
grep -q "cannot create a UCX worker.*/dev/shm has .* KiB free.*--shm-size.*transports = \"tcp\"" ucx.log ||
    { tail -3 ucx.log; fail "/dev/shm is not named"; }
grep -m1 "/dev/shm has" ucx.log | cut -c1-200
echo "mistake: no space in /dev/shm"
small bash -c 'run_tiny tcp 3 --set run.transport=ucx --set transport.ucx.transports=tcp' > tcp.log 2>&1 ||
    { tail -5 tcp.log; fail "tcp needs no /dev/shm"; }
echo "1 passed, 0 failed"
