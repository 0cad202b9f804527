#!/bin/sh
# `orrery new-plugin` of the installed program: every kind that there is configures, builds, loads and passes its test
# as it stands; nothing is overwritten; bad names are refused.
# usage: new_plugin.sh SOURCE BUILD [KINDS, all when left out]
set -eu
source=$1 build=$2 work=$2/tests/new_plugin
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" > "$work/log.txt"
orrery=$work/prefix/bin/orrery
[ -x "$orrery" ] || { echo "there is no program"; exit 1; }
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
flags=$(sed -n 's/^ORRERY_SANITIZE:[A-Z]*=//p' "$build/CMakeCache.txt" | tr ';' ',')
[ -z "$flags" ] || export CXXFLAGS="-fsanitize=$flags" LDFLAGS="-fsanitize=$flags"
cd "$work"

refused() {
    if "$orrery" new-plugin "$@" > refused.txt 2>&1; then echo "new-plugin $* was not refused"; exit 1; fi
    grep -q "$wanted" refused.txt || { cat refused.txt; echo "new-plugin $*: the message lacks '$wanted'"; exit 1; }
}
wanted="kinds: " refused stroe tape
wanted='did you mean "store"' refused stroe tape
for name in Tape 7tape ta-pe ../tape tape_ "ta pe"; do wanted="is not a valid plugin name" refused store "$name"; done
[ -z "$(find . -name '*tape*' -o -name '*Tape*')" ] || { echo "a refused plugin left files"; exit 1; }

# A suite that is not built is named by `cmake --install`, and by a project whose test it would be.
mkdir unbuilt
cat > unbuilt/CMakeLists.txt << END
cmake_minimum_required(VERSION 3.25)
project(unbuilt LANGUAGES NONE)
set(CMAKE_INSTALL_LIBDIR lib)
include($source/tests/suites/install.cmake)
foreach(suite unbuilt_tests built_tests)
  add_executable(\${suite} IMPORTED)
  set_target_properties(\${suite} PROPERTIES IMPORTED_LOCATION \${CMAKE_BINARY_DIR}/\${suite})
  orrery_install_suite(\${suite} \${suite})
endforeach()
file(TOUCH \${CMAKE_BINARY_DIR}/built_tests)
orrery_tell_unbuilt_suites()
set(ORRERY_SUITES \${CMAKE_BINARY_DIR})
include($source/scripts/cmake/plugin.cmake)
orrery_op_tests(sundial)
END
{
    cmake -S unbuilt -B unbuilt/build
    cmake --install unbuilt/build --prefix "$work/unbuilt/prefix"
} > unbuilt.txt 2>&1
for words in "are left out: unbuilt_tests\$" "there is no test ops.sundial: .* has no op_tests, which was not built"; do
    tr '\n' ' ' < unbuilt.txt | tr -s ' ' | sed 's/ tests of plugins/\n&/' | grep -q "$words" ||
        { cat unbuilt.txt; echo "no word of '$words'"; exit 1; }
done
[ -e unbuilt/prefix/lib/orrery/built_tests ] || { echo "a suite that is built is not installed"; exit 1; }

kinds=${3:-$(ls "$source/scripts/templates")}
for kind in $kinds; do
    # Two words, so that both spellings of the name are tried.
    "$orrery" new-plugin "$kind" night_clock "$kind" > "$kind.txt"
    ! grep -rqi sundial "$kind" || { grep -ri sundial "$kind"; echo "$kind: the template's name is left"; exit 1; }
    wanted="is not empty" refused "$kind" night_clock "$kind"
    [ ! -e "$kind/try.lua" ] || [ -e "$kind/.luacheckrc" ] || { echo "$kind: no .luacheckrc"; exit 1; }
    ! command -v luacheck > luacheck.txt || luacheck "$kind" > luacheck.txt 2>&1 ||
        { cat luacheck.txt; echo "$kind: luacheck finds faults"; exit 1; }
    if [ -e "$kind/CMakeLists.txt" ]; then
        {
            cmake -S "$kind" -B "$kind/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
                -DCMAKE_CXX_COMPILER="$compiler" \
                -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wno-missing-field-initializers -Werror ${CXXFLAGS:-}"
            cmake --build "$kind/build"
            ctest --test-dir "$kind/build" --output-on-failure
        } >> log.txt 2>&1 || { tail -n 40 log.txt; echo "$kind: does not build and pass"; exit 1; }
        case $kind in
        store | data | device | rendezvous | launcher | engine | codec)
            grep -q " $kind.night_clock .*Passed" log.txt || { echo "$kind: its suite did not run"; exit 1; } ;;
        esac
    else
        sh "$kind/test.sh" "$orrery" >> log.txt 2>&1 || { tail -n 40 log.txt; echo "$kind: its test fails"; exit 1; }
    fi
    echo "$kind: ok"
done

# A transport that promises what it does not keep gives right results, and the suite says which line is not kept.
if [ -e transport/build ]; then
    grep -q "conformance.night_clock .*Passed" log.txt || { echo "transport: the suite did not run"; exit 1; }
    sed -i 's|c.same_host = true;|& c.reduction = TransportContract::Reduction::by_rank;|' transport/night_clock.cpp
    cmake --build transport/build >> log.txt 2>&1 || { tail -n 40 log.txt; echo "the broken transport"; exit 1; }
    if ORRERY_CONFORMANCE_TRANSPORTS=night_clock ORRERY_CONFORMANCE_PLUGINS=$work/transport/build/plugins \
        "$work/prefix/lib/orrery/conformance" "[contract]" > broken.txt 2>&1; then
        echo "the suite passes a transport that breaks its contract"; exit 1
    fi
    grep -q "other bits than in rank order" broken.txt || { tail -n 40 broken.txt; echo "another reason"; exit 1; }
    code=0
    ORRERY_CONFORMANCE_TRANSPORTS=no_clock "$work/prefix/lib/orrery/conformance" > broken.txt 2>&1 || code=$?
    [ $code -eq 2 ] || { tail -n 40 broken.txt; echo "without the transport: exit code $code"; exit 1; }
    grep -q "no transport no_clock in" broken.txt || { tail -n 40 broken.txt; echo "no word of no_clock"; exit 1; }
    echo "a broken transport fails"
fi
