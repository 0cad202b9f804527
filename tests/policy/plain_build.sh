#!/usr/bin/env bash
# Long: core and its tests without precompiled headers, which hide missing includes.
set -eu
[ -n "${ORRERY_LONG:-}" ] || { echo "skipped: takes a quarter of an hour; scripts/test --long"; exit 77; }
root=$(cd "$(dirname "$0")/../.." && pwd)
export ORRERY_BUILD=$root/build-plain ORRERY_CMAKE="-DORRERY_PRECOMPILE=OFF -DORRERY_CUDA=OFF"
"$root/scripts/build" orrery_objects unit_tests conformance_tests plugin_tests checkpoint_tests \
    store_tests data_tests device_tests rendezvous_tests launcher_tests engine_tests codec_tests
{
    echo "# Objects that were built without precompiled headers."
    find "$ORRERY_BUILD" -name '*.o' | wc -l
} > "$ORRERY_LONG"
rm -rf "$ORRERY_BUILD"
