#!/bin/sh
# Each thing that an op may say wrongly of itself is found by the test that is for it, and by no test of another op.
# usage: wrong.sh OP_TESTS FOLDER_OF_PLUGINS
set -u
program=$1
export ORRERY_TESTED_OPS=wrong ORRERY_TESTED_OP_PLUGINS="$2"
bad=0

# fails TEST OP: the test finds the op wrong, and names it.
fails() {
    if said=$("$program" "$1" -c "$2" 2>&1) || ! echo "$said" | grep -q "$2"; then
        echo "$said" | tail -n 20
        echo "$2 passes: $1"
        bad=1
    fi
}

# passes TEST OP
passes() {
    said=$("$program" "$1" -c "$2" 2>&1) || { echo "$said" | tail -n 40; echo "$2 does not pass: $1"; bad=1; }
}

gradient="every op's gradient equals central differences"
factors="every factor that a rule lets be split is split rightly"
layouts="every op is right in every layout on one axis"
kernels="CPU kernels of every op agree with the reference"
text="programs of every op print and parse and are legal"
fails "$gradient" wrong_gradient
fails "$gradient" wrong_constant
fails "$factors" wrong_rule
fails "$layouts" wrong_rule
fails "$layouts" wrong_linear
fails "$kernels" wrong_kernel
fails "$kernels" wrong_place
fails "$text" wrong_text
for test in "$gradient" "$factors" "$layouts" "$kernels" "$text"; do passes "$test" wrong; done
passes "$kernels" wrong_rule
passes "$gradient" wrong_linear
passes "$factors" wrong_kernel
for pair in "every op has samples/wrong_samples" "traits of ops are true of what their kernels do/wrong_trait"; do
    if said=$("$program" "${pair%/*}" 2>&1) || ! echo "$said" | grep -q "${pair#*/}"; then
        echo "$said" | tail -n 20
        echo "${pair#*/} passes: ${pair%/*}"
        bad=1
    fi
done
[ $bad -eq 0 ] && echo "what ops say wrongly of themselves is found"
exit $bad
