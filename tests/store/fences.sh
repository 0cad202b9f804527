#!/bin/sh
# Stops a save of generation 3 at each of its system calls, lets generation 4 be claimed there, and wakes it: what
# was not committed when the claim was granted is not committed later, what is visible is whole, the next save works.
# usage: fences.sh FOLDER_OF_STORE_DRILL
set -eu
drill=$1/store_drill work=$1/store_fences
command -v strace > /dev/null || { echo "skipped: strace is not installed"; exit 77; }
strace -o /dev/null true 2> /dev/null || { echo "skipped: this machine does not allow ptrace"; exit 77; }
export ASAN_OPTIONS=detect_leaks=0 # the leak checker cannot run under strace
rm -rf "$work"
mkdir -p "$work/start"
"$drill" claim "$work/start" 3
"$drill" save3 "$work/start" 1
"$drill" save3 "$work/start" 2

runs=0 before=0 after=0
# A call is made, and then the process stops: at getdents64 it has just looked which generation is the newest.
for call in mkdirat openat getdents64 write fsync linkat renameat2 unlinkat; do
    nth=1
    while [ $nth -lt 80 ]; do
        rm -rf "$work/now"
        cp -r "$work/start" "$work/now"
        rm -f "$work/trace" "$work/rc"
        (rc=0; strace -qq -o "$work/trace" -e "inject=$call:signal=STOP:when=$nth" \
            "$drill" save3 "$work/now" 3 2> "$work/said" || rc=$?; echo $rc > "$work/rc") &
        shell=$!
        tries=0
        while [ ! -s "$work/rc" ] && ! grep -q "stopped by SIGSTOP" "$work/trace" 2> /dev/null; do
            sleep 0.01; tries=$((tries + 1)); [ $tries -lt 2000 ] || { echo "neither ends nor stops"; exit 1; }
        done
        if [ -s "$work/rc" ]; then wait $shell; break; fi
        "$drill" claim "$work/now" 4 || { echo "no claim at $call number $nth"; exit 1; }
        granted=$("$drill" list "$work/now" 0)
        tracer=$(ps -o pid= --ppid $shell | head -1)
        kill -CONT $(ps -o pid= --ppid $tracer)
        wait $shell
        woken=$("$drill" list "$work/now" 0)
        for step in $woken; do # an old step may still go, that looked before the claim whether it may
            case " $granted" in
            *" $step "*) ;;
            *) echo "at $call number $nth: '$granted' became '$woken'"; exit 1 ;;
            esac
        done
        "$drill" check "$work/now" 2 || { echo "after $call number $nth"; exit 1; }
        case " $granted" in
        *" 3 "*) after=$((after + 1)) ;;
        *)  before=$((before + 1))
            [ "$(cat "$work/rc")" -ne 0 ] || { echo "at $call number $nth: a refused save said it worked"; exit 1; }
            grep -q "generation 4" "$work/said" || { cat "$work/said"; echo "the fence is not named"; exit 1; } ;;
        esac
        "$drill" save4 "$work/now" 4 || { echo "no save after $call number $nth"; exit 1; }
        "$drill" check "$work/now" 2
        runs=$((runs + 1)) nth=$((nth + 1))
    done
done
rm -rf "$work"
[ $before -ge 20 ] && [ $after -ge 2 ] || { echo "only $before stops before the commit, $after after it"; exit 1; }
echo "$runs stops: $before before the commit, $after after it"
