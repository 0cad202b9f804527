#!/bin/sh
# A suite passes the plugins of its kind that are shipped, and fails each of those that break one rule.
# usage: check.sh KIND SOURCE BUILD
set -u
kind=$1 source=$2 build=$3
suite=$build/${kind}_tests wrong=$build/tests/wrong_plugins bad=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
case $kind in data | rendezvous) plural= ;; *) plural=S ;; esac
names=ORRERY_CONFORMANCE_$(echo "$kind" | tr a-z A-Z)$plural

# run NAMES FOLDER [arguments of the suite]: with the configuration config.toml.
run() {
    chosen=$1 folder=$2
    shift 2
    timeout 300 env "$names=$chosen" ORRERY_CONFORMANCE_PLUGINS="$folder" ORRERY_CONFORMANCE_CONFIG=config.toml \
        "$suite" "$@" > said.txt 2>&1
}
# passes NAMES FOLDER [arguments of the suite]
passes() {
    run "$@" || { tail -n 60 said.txt; echo "$kind/$1 does not pass"; bad=1; }
}
# configure FAULT: of the wrong plugin, or the ranks that a launcher has, or the jobs of an engine.
configure() {
    if [ -e ranks.toml ]; then cat ranks.toml; else printf '[%s.wrong]\nfault = "%s"\n' "$kind" "$1"; fi > config.toml
}
# fails FAULT TEST [NAME FOLDER]: the test finds the fault.
fails() {
    configure "$1"
    if run "${3:-wrong}" "${4:-$wrong}" -a "$2*" || ! grep -q '^.*FAILED:$\|fatal error' said.txt; then
        tail -n 20 said.txt
        echo "a wrong $kind passes \"$2\": $1"
        bad=1
    fi
}
# Where there is no such plugin the suite says so, and ends by 2.
: > config.toml
run no_such "$wrong"
[ $? -eq 2 ] && grep -q "no $kind no_such in $wrong, " said.txt ||
    { cat said.txt; echo "no_such is not refused"; bad=1; }

case $kind in
store)
    passes "" "$build/tests/store_plugins"
    fails fences "what a claimed generation"
    for fault in drops replace order short note aside; do fails $fault "stores keep their promises"; done
    ;;
device)
    passes cpu,apart "$build/tests/apart_plugins"
    # Its kernels are unit/kernels_cuda_ops.
    passes cuda "$build/tests/standin_plugins" "~kernels of every op*"
    printf '[device.cpu]\nthreads = 3\n' > config.toml
    passes cpu "$wrong"
    for fault in accepts nameless result input past random; do fails $fault "kernels of every op"; done
    fails alignment "memory is aligned"
    fails short "copies are done"
    fails event "an event is done"
    ;;
data)
    printf '[data]\npath = "%s"\ntokens_per_sequence = 12\n' "$source/README.md" > config.toml
    passes text ""
    head -c 6000 "$source/README.md" > ids.bin
    printf '[data]\npath = "ids.bin"\nvocab = 65536\ntokens_per_sequence = 12\n' > config.toml
    passes tokens ""
    { # 200 samples of f32[2,3], as NumPy writes them
        printf '\223NUMPY\001\000v\000'
        printf '%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (200, 2, 3), }"
        head -c 4800 "$source/README.md"
    } > points.npy
    printf '[data]\npath = "points.npy"\n' > config.toml
    passes arrays ""
    printf '[data]\npath = "%s"\ntokens_per_sequence = 12\nseparator = 10\n' "$source/scripts/README.md" > config.toml
    passes documents ""
    tr -d '"\\\\\t' < "$source/scripts/README.md" | sed 's/.*/{"text": "&\\n"}/' > lines.jsonl
    printf '[data]\npath = "lines.jsonl"\ntokens_per_sequence = 12\n' > config.toml
    passes documents ""
    : > config.toml
    passes mixture ""
    right=$build/tests/bad_plugins/data # a source in the place of the template's, with ORRERY_TEST_FAULT
    ORRERY_TEST_FAULT= passes sundial "$right"
    for fault in offset random half past; do
        ORRERY_TEST_FAULT=$fault fails $fault "every block is that part" sundial "$right"
    done
    ORRERY_TEST_FAULT=throw fails throw "reads give the same bytes" sundial "$right"
    ORRERY_TEST_FAULT=digest fails digest "a source is told apart" sundial "$right"
    ORRERY_TEST_FAULT=again fails again "a source is told apart" sundial "$right"
    ORRERY_TEST_FAULT=arrays fails arrays "a source offers the same arrays" sundial "$right"
    ORRERY_TEST_FAULT=order fails order "an order is a function" sundial "$right"
    ORRERY_TEST_FAULT=rank fails rank "an order is a function" sundial "$right"
    ORRERY_TEST_FAULT=vocabulary fails vocabulary "ids are those" sundial "$right"
    ;;
launcher)
    cp "$source/tests/suites/ranks.toml" config.toml
    passes torchrun,slurm,openmpi ""
    export ORRERY_TEST_FAULT
    sed 's/sundial\./wrong./' "$source/scripts/templates/launcher/ranks.toml" > ranks.toml
    cp ranks.toml config.toml
    ORRERY_TEST_FAULT='' passes wrong "$wrong"
    for ORRERY_TEST_FAULT in always environment changes nameless negative swapped; do
        case $ORRERY_TEST_FAULT in
        always) test="a launcher has nothing to say" ;;
        nameless | negative) test="each answer is a rank" ;;
        swapped) test="the ranks of its configuration" ;;
        *) test="it reads the environment" ;;
        esac
        fails $ORRERY_TEST_FAULT "$test"
    done
    unset ORRERY_TEST_FAULT
    ;;
engine)
    cp "$source/tests/suites/engines.toml" config.toml
    printf 'n1\nn2\nn3\nn4\n' > hosts.txt
    passes "" ""
    export ORRERY_TEST_FAULT
    sed 's/sundial/wrong/' "$source/scripts/templates/engine/jobs.toml" > ranks.toml
    cp ranks.toml config.toml
    ORRERY_TEST_FAULT='' passes wrong "$wrong"
    for ORRERY_TEST_FAULT in other stranger endless always deaf unquoted counts changes nameless; do
        case $ORRERY_TEST_FAULT in
        always) test="it has a job only" ;;
        deaf) test="what it writes has" ;;
        unquoted) test="a job with hostile texts" ;;
        counts | changes) test="it repeats its texts" ;;
        nameless) test="a job has a name" ;;
        *) test="an engine without settings" ;;
        esac
        fails $ORRERY_TEST_FAULT "$test"
    done
    unset ORRERY_TEST_FAULT
    ;;
codec)
    passes "" "" # those of the library
    export ORRERY_TEST_FAULT
    for ORRERY_TEST_FAULT in nothing flat type bound hides; do
        case $ORRERY_TEST_FAULT in
        bound) test="what codes stand for" ;;
        hides) test="an array with an infinity" ;;
        *) test="codes keep the leading dims" ;;
        esac
        fails $ORRERY_TEST_FAULT "$test"
    done
    ORRERY_TEST_FAULT=lacks
    run wrong "$wrong"
    [ $? -eq 2 ] && grep -q "the codec wrong lacks decode" said.txt ||
        { cat said.txt; echo "a codec without decode is not refused"; bad=1; }
    unset ORRERY_TEST_FAULT
    ;;
rendezvous)
    passes tcp ""
    fails text "a wait for a key"
    fails early "ranks meet"
    fails silent "a rank that dies"
    fails token "who lacks the token"
    fails hurry "who joins before"
    fails leave "leaving is no loss"
    fails position "positions reach"
    ;;
esac
configure ""
[ $kind = data ] || { passes wrong "$wrong"; } # without a fault it is right
[ $bad -eq 0 ] && echo "1 passed, 0 failed: every correct $kind plugin passes, every wrong one fails"
exit $bad
