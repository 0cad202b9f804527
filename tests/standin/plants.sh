#!/usr/bin/env bash
# Mistakes as the plugins could make them, each made for them by the stand-in (ORRERY_STANDIN_PLANT): a test or a job
# must find it.
source "$(dirname "$0")/../jobs/lib.sh"
export XDG_CACHE_HOME=$work/cache
export MALLOC_TRIM_THRESHOLD_=268435456  # the emulator's stacks stay in the heap between kernels

# found MISTAKE TEST SAYS: standin_tests' TEST fails with these words. A mistake of order shows only while what comes
# first still runs, which a busy machine may have ended by then: it is made up to ten times.
found() {
    local mistake=$1 test=$2 says=$3 attempt
    "$ORRERY_TESTS/standin_tests" "$test" > right.log 2>&1 || { cat right.log; fail "$test: fails without a mistake"; }
    grep -q "All tests passed" right.log || { cat right.log; fail "$test: there is no such test"; }
    for attempt in $(seq 10); do
        ORRERY_STANDIN_PLANT=$mistake timeout 120 "$ORRERY_TESTS/standin_tests" "$test" > wrong.log 2>&1 || break
        [ "$attempt" -lt 10 ] || { cat wrong.log; fail "$mistake: \"$test\" does not find it"; }
    done
    grep -q -- "$says" wrong.log || { cat wrong.log; fail "$mistake: \"$test\" fails without saying $says"; }
    echo "$mistake: found by \"$test\""
}
# job MISTAKE SAYS ARGUMENTS...: a job of two ranks fails with these words.
job() {
    local mistake=$1 says=$2
    shift 2
    ORRERY_STANDIN_PLANT=$mistake timeout 120 bash -c "$(declare -f run_tiny)"'
        run_tiny "$@"' tiny "$mistake" 4 --set "plugins.path=[\"$ORRERY_STANDIN\"]" --set run.device=cuda \
        --set run.transport=nccl "$@" > job.log 2>&1 &&
        { cat job.log; fail "$mistake: a job of two ranks does not find it"; }
    grep -q -- "$says" job.log || { cat job.log; fail "$mistake: the job fails without saying $says"; }
    echo "$mistake: found by a job of two ranks"
}
export orrery source_root

# Streams: one does not wait for another's event.
found no_wait "gpu: queues wait for each other's events" "20.0f"
# Events: one is done before the work that it stands for.
found early_event "gpu: queues wait for each other's events" "20.0f"
# Gates: a captured step waits for what was behind one when it was captured.
found old_gate "gpu: a captured step waits at a gate*" "seen"
# Captures: a call that one forbids.
found wait_in_capture "gpu: a captured step with messages*" "cudaErrorStreamCaptureInvalidated"
# Groups: messages that are none, one that is missing at a member, members that ask for different things.
found no_group "gpu: messages of a group*" "invalid usage"
job lost_message "longer than the timeout of 5 s\|within 5000 ms" \
    --set mesh.dp=1 --set mesh.pp=2 --set train.microbatches=2 --set run.timeout_s=5
job other_count "member [01] calls all_reduce of" --set mesh.dp=2
