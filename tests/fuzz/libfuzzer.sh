#!/usr/bin/env bash
# tests/fuzz/libfuzzer.sh [SECONDS [TARGET...]]: every target, two at a time, under libFuzzer with AddressSanitizer and
# UndefinedBehaviorSanitizer, SECONDS each (60), 256 MiB and 1 s of the processor an input, from the seeds and what
# earlier rounds have found in build-fuzz/corpus; then the lines of each target's files that the corpus reaches. Prints
# the table of README.md, whose inputs are those of all rounds. Needs clang 14 with its runtime, and llvm 14 for the
# lines. Exit code 1 with a finding, 77 without clang.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-60}
command -v clang++-14 > /dev/null || { echo "skipped: no clang++-14; on Debian: apt-get install clang-14"; exit 77; }
out=$PWD/build-fuzz
mkdir -p "$out"

# What the targets parse with, and what that needs.
mapfile -t sources < <(ls core/base/*.cpp core/base/files/*.cpp core/config/*.cpp core/layout/{layout,mesh,shards}.cpp \
    core/run/checkpoint/format/*.cpp \
    core/control/*.cpp plugins/engine/ssh/hostfile.cpp plugins/launcher/slurm/node_list.cpp \
    tests/fuzz/*.cpp | grep -v tests/fuzz/driver.cpp)

# build NAME FLAGS...: build-fuzz/NAME, of what has changed.
build() {
    local name=$1 source object
    shift
    mkdir -p "$out/$name.objects"
    for source in "${sources[@]}"; do
        object=$out/$name.objects/$(tr / _ <<< "$source").o
        printf '%s\0%s\0' "$source" "$object"
    done | xargs -0 -n 2 -P "$(nproc)" sh -c '
        source=$1 object=$2
        if [ -e "$object" ] && [ -z "$(find core tests/fuzz -name "*.h" -newer "$object" | head -1)" ] &&
            [ ! "$source" -nt "$object" ]; then exit 0; fi
        exec clang++-14 -std=c++20 -O2 -g -Icore -Icore/include -Itests/fuzz -DFMT_SHARED -DORRERY_VERSION=\"fuzz\" \
            $flags -c "$source" -o "$object"' sh ||
        { echo "libfuzzer: $name was not built" >&2; exit 2; }
    # Functions that no target calls may lack what they call.
    clang++-14 "$@" "$out/$name.objects"/*.o -o "$out/$name" -lfmt -lcrypto -fuse-ld=mold \
        -Wl,--unresolved-symbols=ignore-all
}
export flags="-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined"
build fuzz -fsanitize=fuzzer,address,undefined
flags="-fprofile-instr-generate -fcoverage-mapping -fsanitize=fuzzer-no-link"
build lines -fprofile-instr-generate -fcoverage-mapping -fsanitize=fuzzer

files_of() {
    local room=core/run/checkpoint
    case $1 in
    frames) echo core/control/wire.cpp core/control/membership.cpp ;;
    hello) echo core/control/strangers.cpp core/control/member_link.cpp ;;
    manifest) echo $room/format/manifest.cpp $room/format/tiling.cpp $room/format/object_reader.cpp ;;
    index) echo $room/format/rank_index.cpp ;;
    safetensors) echo $room/format/safetensors.cpp core/base/files/file_kind.cpp ;;
    json) echo core/base/json.cpp ;;
    hostfile) echo plugins/engine/ssh/hostfile.cpp ;;
    node_list) echo plugins/launcher/slurm/node_list.cpp ;;
    toml) echo core/config/load.cpp core/config/bounds.cpp core/config/render.cpp ;;
    esac
}

seeds=$out/seeds bad=0 all=0
targets=("${@:2}")
[ $# -ge 2 ] || targets=(frames hello manifest index safetensors json toml node_list hostfile)
build/tests/fuzz_tests --write "$seeds"

# What is freed and kept away counts as memory, too: less of it than the 256 MiB of ASan.
export ASAN_OPTIONS=quarantine_size_mb=32

# fuzz TARGET: leaves TARGET.log, and TARGET.failed with a finding.
fuzz() {
    local words=() longest=1024  # bytes: a manifest has some thousand; the driver's inputs have up to 64 KiB
    [ "$1" = manifest ] && longest=8192
    mkdir -p "$out/corpus/$1"
    rm -f "$out/$1.failed"
    [ -s "$seeds/$1.dict" ] && words=("-dict=$seeds/$1.dict")
    FUZZ_TARGET=$1 nice -n 5 "$out/fuzz" -max_total_time="$seconds" -rss_limit_mb=256 -timeout=20 -max_len=$longest \
        -print_final_stats=1 -artifact_prefix="$out/$1-" "${words[@]}" "$out/corpus/$1" "$seeds/$1" \
        > "$out/$1.log" 2>&1 || touch "$out/$1.failed"
}
for target in "${targets[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    fuzz $target &
done
wait

echo "| target | files | inputs | corpus | lines reached | findings |"
echo "|---|---|---|---|---|---|"
for target in "${targets[@]}"; do
    corpus=$out/corpus/$target log=$out/$target.log found=none
    if [ -e "$out/$target.failed" ]; then
        found="$(grep -m1 -E 'ERROR:|SUMMARY:' "$log" || echo "see $log")"
        bad=1
    fi
    sed -n 's/^stat::number_of_executed_units: *//p' "$log" >> "$out/$target.rounds"
    inputs=$(awk '{ all += $1 } END { print all + 0 }' "$out/$target.rounds")
    all=$((all + inputs))
    lines=-
    if command -v llvm-cov-14 > /dev/null; then
        FUZZ_TARGET=$target LLVM_PROFILE_FILE=$out/$target.raw "$out/lines" -runs=0 "$corpus" "$seeds/$target" \
            > "$out/$target.lines.log" 2>&1
        llvm-profdata-14 merge -sparse "$out/$target.raw" -o "$out/$target.profile"
        lines=$(llvm-cov-14 export -summary-only -instr-profile="$out/$target.profile" "$out/lines" \
            $(files_of $target) |
            python3 -c '
import json, sys
lines = json.load(sys.stdin)["data"][0]["totals"]["lines"]
print("%d of %d, %.0f %%" % (lines["covered"], lines["count"], lines["percent"]))')
    fi
    names=$(files_of $target | xargs -n 1 basename | sed 's/\.cpp//' | paste -sd ' ' | sed 's/ /, /g')
    echo "| $target | $names | $inputs | $(ls "$corpus" | wc -l) | $lines | $found |"
done
echo "$all inputs"
exit $bad
