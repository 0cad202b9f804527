#!/usr/bin/env bash
# tests/policy/unused.sh SOURCE BUILD: functions of core that nothing reaches from what liborrery.so exports
# (ORRERY_API) and from the program's main. Compiled without inlining, a section a function; the linker drops what
# nobody calls.
# With ORRERY_LONG=FILE the outcome goes there, too.
set -eu
source_root=$1 build=$2/unused
cmake -S "$source_root" -B "$build" -G Ninja -DORRERY_CUDA=OFF -DORRERY_DEV=OFF -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_CXX_FLAGS="-ffunction-sections -fno-inline" -DCMAKE_CXX_FLAGS_DEBUG=-O0 > "$build.log"
ninja -C "$build" -t cleandead >> "$build.log" # objects of sources that are gone
ninja -C "$build" orrery_objects >> "$build.log"
mapfile -t objects < <(find "$build/core" -path '*orrery_objects.dir*' -name '*.o')
[ "${#objects[@]}" -gt 100 ] || { echo "FAILED: ${#objects[@]} objects in $build/core"; exit 1; }
c++ -shared -fuse-ld=mold -o "$build/unused.so" -Wl,--version-script="$source_root/core/exports.map" -Wl,--gc-sections \
    -Wl,--print-gc-sections "${objects[@]}" -llua5.4-c++ -lfmt -lcrypto -ldl -lrt > "$build.dropped" 2>&1
# Copies, moves, comparisons and destructors are the compiler's; templates and lambdas go with who uses them.
dropped=$(sed -nE 's/.*orrery_objects.*\(\.text\.([^)]*)\)$/\1/p' "$build.dropped" | sort -u | c++filt |
    awk -F'(' '/^orrery::/ && !/[{]lambda/ && $1 !~ /~|operator|</ {
        n = split($1, part, "::"); sub(/\[abi:.*/, "", part[n])
        if (n < 2 || part[n] != part[n - 1]) print }')
grep -c 'removing unused section' "$build.dropped" > /dev/null || { echo "FAILED: the linker named nothing"; exit 1; }
table="functions of core that nothing uses: $([ -z "$dropped" ] && echo none || printf '\n%s' "$dropped")"
echo "$table"
[ -z "${ORRERY_LONG:-}" ] || echo "$table" > "$ORRERY_LONG"
[ -z "$dropped" ]
