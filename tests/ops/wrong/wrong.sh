#!/bin/sh
# Each thing that an op may say wrongly of itself is found by the test that is for it, and by no test of another op.
# usage: wrong.sh OP_TESTS FOLDER_OF_PLUGINS
set -u
program=$1
export ORRERY_TESTED_OPS=wrong ORRERY_TESTED_OP_PLUGINS="$2"
bad=0

# fails TEST OP: the test finds the op wrong, and names it.
fails() {
    if text=$("$program" "$1" -c "$2" 2>&1) || ! echo "$text" | grep -q "$2"; then
        echo "$text" | tail -n 20
        echo "$2 passes: $1"
        bad=1
    fi
}

# passes TEST OP
passes() {
    text=$("$program" "$1" -c "$2" 2>&1) || { echo "$text" | tail -n 40; echo "$2 does not pass: $1"; bad=1; }
}

gradient="every op's gradient equals central differences"
factors="every factor that a rule lets be split is split rightly"
layouts="every op is right in every layout on one axis"
kernels="CPU kernels of every op agree with the reference"
text="programs of every op print and parse and are legal"
fails "$gradient" wrong_gradient
fails "$factors" wrong_rule
fails "$layouts" wrong_rule
fails "$kernels" wrong_kernel
fails "$kernels" wrong_place
for test in "$gradient" "$factors" "$layouts" "$kernels" "$text"; do passes "$test" wrong; done
passes "$kernels" wrong_rule
passes "$factors" wrong_kernel
for pair in "every op has samples/wrong_samples" "traits of ops are true of what their kernels do/wrong_trait"; do
    if text=$("$program" "${pair%/*}" 2>&1) || ! echo "$text" | grep -q "${pair#*/}"; then
        echo "$text" | tail -n 20
        echo "${pair#*/} passes: ${pair%/*}"
        bad=1
    fi
done
[ $bad -eq 0 ] && echo "what ops say wrongly of themselves is found"
exit $bad
