#!/bin/sh
# Installs the build, builds the plugins of out_of_tree/ against it as a stranger would, and loads them.
# usage: out_of_tree.sh SOURCE BUILD
set -eu
source=$1 build=$2 work=$2/tests/out_of_tree
rm -rf "$work"
cmake --install "$build" --prefix "$work/prefix" > "$work.log"
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
configure() {
    cmake -S "$source/tests/plugins/out_of_tree" -B "$1" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
        -DCMAKE_CXX_COMPILER="$compiler" $2 >> "$work.log" 2>&1
}
flags=$(sed -n 's/^ORRERY_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt" | tr ';' ',')
[ -z "$flags" ] || export CXXFLAGS="-fsanitize=$flags" LDFLAGS="-fsanitize=$flags"
configure "$work/build" ""
cmake --build "$work/build" >> "$work.log"
ORRERY_TEST_FOLDER=$work/build/plugins "$build/tests/plugin_tests" "[out_of_tree]" -w NoTests

# The digest of a plugin's code is that of its source: the same in a folder with a longer name and with debug
# information, another one where a word changes. An installed library's is that of the one that was built. (Code for
# AddressSanitizer names its source file.)
if [ -x "$work/prefix/bin/orrery" ] && [ -z "$flags" ]; then
    codes() { "$1" --version | awk '/^  / { print $1, $2 }'; }
    [ "$(codes "$build/orrery")" = "$(codes "$work/prefix/bin/orrery")" ] || { echo "other digests installed"; exit 1; }
    code() { "$work/prefix/bin/orrery" plugins "$1/plugins" | awk '$1 == "strategy/rows" { print $3 }'; }
    other=$work/a_folder_with_a_much_longer_name/below_another
    mkdir -p "$other"
    cp "$source"/tests/plugins/out_of_tree/* "$other/"
    rows() {
        cmake -S "$other" -B "$other/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_FLAGS=-g \
            -DCMAKE_CXX_COMPILER="$compiler" >> "$work.log" 2>&1
        cmake --build "$other/build" --target strategy_rows >> "$work.log"
        code "$other/build"
    }
    was=$(code "$work/build")
    is=$(rows)
    [ ${#was} -eq 12 ] && [ "$was" = "$is" ] || { echo "digests in two folders: \"$was\", \"$is\""; exit 1; }
    sed -i 's/split(0)/split(1)/' "$other/rows.cpp"
    is=$(rows)
    [ ${#is} -eq 12 ] && [ "$was" != "$is" ] || { echo "digests of two sources: \"$was\", \"$is\""; exit 1; }
    # Also of what is in an archive, wherever it is.
    archive() {
        mkdir -p "$1"
        echo "int $2() { return $3; }" > "$1/part.cpp"
        "$compiler" -c "$1/part.cpp" -o "$1/part.o" && rm -f "$1/parts.a" && ar qc "$1/parts.a" "$1/part.o"
        "$work/prefix/lib/orrery/orrery_link" echo -o all.so "$1/parts.a" | sed 's/.*build-id=//'
    }
    here=$(archive "$work/here" f 1)
    [ "$here" = "$(archive "$other/there" f 1)" ] || { echo "an archive in another folder: another digest"; exit 1; }
    [ "$here" != "$(archive "$work/here" f 2)" ] || { echo "another constant in an archive: the same digest"; exit 1; }
    [ "$here" != "$(archive "$work/here" g 1)" ] || { echo "another name in an archive: the same digest"; exit 1; }
    # And of an object with so many sections that 16 bits do not hold their numbers. many NAME SECTION
    many() {
        cat > "$work/many.s" << END
.altmacro
.macro one n
.section .text.f\\n,"ax"
.byte 1
.endm
.set i, 0
.rept 65500
one %i
.set i, i+1
.endr
.byte 2
.section .data.last,"aw"
.globl $1
$1: .quad last_text
.section .text.f$2,"ax"
last_text: .byte 3
END
        "$compiler" -c "$work/many.s" -o "$work/many.o"
        "$work/prefix/lib/orrery/orrery_link" echo -o all.so "$work/many.o" | sed 's/.*build-id=//'
    }
    here=$(many name 65499)
    for change in "other 65499" "name 65498"; do
        [ "$here" != "$(many $change)" ] || { echo "many sections, $change: the same digest"; exit 1; }
    done
    # One whose sections cannot be counted is refused: their number, in the first of them, is 0.
    python3 -c '
import sys
b = bytearray(open(sys.argv[1], "rb").read())
at = int.from_bytes(b[40:48], "little") + 32
b[at : at + 8] = bytes(8)
open(sys.argv[1], "wb").write(b)' "$work/many.o"
    "$work/prefix/lib/orrery/orrery_link" echo -o all.so "$work/many.o" > "$work/none.txt" 2>&1 || true
    grep -q "many.o has no sections" "$work/none.txt" || { cat "$work/none.txt"; echo "it is not refused"; exit 1; }
fi

# Another build type is refused when it is configured, with the reason.
if configure "$work/other" -DCMAKE_BUILD_TYPE=MinSizeRel; then
    echo "a plugin of another build type was configured"; exit 1
fi
grep -q "a plugin must be built as orrery was" "$work.log"

# Plugins that are installed beside the others are found by the installed program, and a job runs on them, far from
# the sources: its strategy comes from data parallelism, its checkpoints go to the tape.
if [ -x "$work/prefix/bin/orrery" ]; then
    cmake --install "$work/build" --prefix "$work/prefix" >> "$work.log"
    "$work/prefix/bin/orrery" plugins > "$work.txt"
    grep -q "store/tape" "$work.txt" || { cat "$work.txt"; echo "store/tape is not in the list"; exit 1; }
    mkdir -p "$work/job"
    cp "$source/scripts/gpt.lua" "$work/job/"
    cd "$work/job"
    seq 2000 > text.txt
    "$work/prefix/bin/orrery" run gpt.lua --set run.folder=run --set run.store=tape --set store.tape.drive=left \
        --set data.path=text.txt --set data.tokens_per_sequence=16 --set train.sequences_per_step=2 \
        --set train.steps=2 --set script.layers=1 --set script.embed=16 --set script.heads=2 > job.log 2>&1 ||
        { cat job.log; exit 1; }
    grep -q "committed and read back.*left:run/checkpoints" job.log || { cat job.log; exit 1; }
fi
