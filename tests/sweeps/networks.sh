#!/usr/bin/env bash
# What a network does to a job: network.py in a network namespace of its own, where it can be made.
# usage: networks.sh ORRERY [REGEX of the rows]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 > /dev/null || { echo "skipped: no python3"; exit 77; }
if [ "${1:-}" = inside ]; then
    shift
    ip link set lo up && ip addr add 10.88.0.1/32 dev lo
elif unshare --net true 2> /dev/null; then
    exec unshare --net "$0" inside "$@"
elif unshare --map-root-user --net true 2> /dev/null; then
    exec unshare --map-root-user --net "$0" inside "$@"
fi
exec python3 -B "$here/network.py" "$@"
