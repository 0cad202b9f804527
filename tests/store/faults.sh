#!/bin/sh
# Kills a save at each of its system calls, and fails each of them, with strace: whatever is visible afterwards is
# whole, the two earlier checkpoints are there, and the next save works.
# usage: faults.sh FOLDER_OF_STORE_DRILL
set -eu
drill=$1/store_drill work=$1/store_faults
command -v strace > /dev/null || { echo "skipped: strace is not installed"; exit 77; }
strace -o /dev/null true 2> /dev/null || { echo "skipped: this machine does not allow ptrace"; exit 77; }
export ASAN_OPTIONS=detect_leaks=0 # the leak checker cannot run under strace
rm -rf "$work"
mkdir -p "$work/start"
"$drill" save "$work/start" 1
"$drill" save "$work/start" 2

runs=0
# inject CALL FAULT: at the first, second, ... such call, until a run makes fewer of them.
inject() {
    nth=1
    while :; do
        rm -rf "$work/now"
        cp -r "$work/start" "$work/now"
        rc=0
        strace -qq -o "$work/trace" -e "inject=$1:$2:when=$nth" "$drill" save "$work/now" 3 2> "$work/said" || rc=$?
        grep -q "INJECTED\|killed by SIGKILL" "$work/trace" || break
        runs=$((runs + 1))
        "$drill" check "$work/now" 2 || { echo "after $2 at $1 number $nth"; exit 1; }
        if [ $rc -eq 0 ] && [ ! -d "$work/now/step-00000003" ]; then
            echo "a save that failed said it worked"; exit 1
        fi
        case $2 in
        error=*) if [ $rc -ne 0 ] && [ ! -s "$work/said" ]; then
                echo "$1 number $nth failed without a word"; exit 1
            fi ;;
        esac
        "$drill" save "$work/now" 4 || { echo "no save after $2 at $1 number $nth"; exit 1; }
        "$drill" check "$work/now" 2
        nth=$((nth + 1))
        [ $nth -lt 60 ] || break
    done
}

for call in mkdirat write fsync linkat renameat2 unlinkat; do inject $call signal=KILL; done
inject openat signal=KILL
inject write error=ENOSPC
inject fsync error=EIO
inject linkat error=ENOSPC
inject renameat2 error=EIO
inject renameat2 error=EXDEV
inject unlinkat error=EPERM
inject mkdirat error=ENOSPC

# A disk that is really full, where we may mount one: the save fails with the reason, the earlier steps are whole.
mkdir -p "$work/disk"
if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=64k tmpfs "$work/disk" 2> /dev/null; then
    trap 'umount "$work/disk"' EXIT
    step=1
    while "$drill" save "$work/disk/ckpt" $step 2> "$work/said"; do
        # what removing older ones frees is taken by something else
        head -c 9k /dev/zero > "$work/disk/other.$step" 2> /dev/null || true
        step=$((step + 1))
        [ $step -lt 20 ] || { echo "a full disk was not noticed"; exit 1; }
    done
    grep -q "No space left on device" "$work/said" || { cat "$work/said"; exit 1; }
    "$drill" check "$work/disk/ckpt" 2
    rm "$work"/disk/other.*
    "$drill" save "$work/disk/ckpt" $step
    umount "$work/disk"
    trap - EXIT
fi
rm -rf "$work"
[ $runs -ge 30 ] || { echo "only $runs faults were injected"; exit 1; }
echo "$runs faults injected"
