#!/usr/bin/env bash
# SIGUSR1 and SIGTERM at random steps, and SIGUSR1 at random moments of the start, to the launcher or to one rank: every
# job ends with 75, either at a step whose checkpoint the next one resumes bit for bit, or with nothing to save and all
# as it was. `seed=7 signals.sh` takes other moments. 40 jobs; the long form has 500, 500 and 200.
source "$(dirname "$0")/lib.sh"
seed=${seed:-1}
jobs=40 longest=600  # the latter: steps of a folder, and of the run that it is compared with
[ -z "${ORRERY_LONG:-}" ] || { jobs=1200 longest=1500; }
pattern=(USR1 TERM start USR1 TERM USR1 TERM USR1 TERM start USR1 TERM)
few="--set checkpoint.every_steps=0 --set train.evaluate_every=0 --set script.layers=1 --set script.embed=128"
few+=" --set script.heads=2 --set run.pin_ranks=false"  # oneDNN has the stack of products of 100 rows in the heap
exec {never}<> <(:)

ms() { now=$((${EPOCHREALTIME/[.,]/} / 1000)); }  # without a process of its own
nap() {
    local s
    printf -v s '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
    read -r -t "$s" -u $never || true
}

# From here on no signal ends it by default; a thread is made later. A rank has this from its launcher.
holds_signals() {
    local name value threads=(/proc/"$1"/task/*)
    [ ${#threads[@]} -lt 2 ] || return 0
    while read -r name value; do
        [ "$name" != SigBlk: ] || { (((16#$value >> 9) & 1)) && return 0; }
    done 2> /dev/null < "/proc/$1/status"
    return 1
}
# until_true LIMIT_MS COMMAND...
until_true() {
    local now limit
    ms
    limit=$((now + $1))
    shift
    until "$@"; do
        ms
        [ $now -lt $limit ] || return 1
        nap 4
    done
}
# Rank 0 has written of a step, so each rank has begun one; or the job has ended.
stepped() { [[ -s $1/metrics.jsonl && $1/metrics.jsonl -nt $1.begun ]] || ! [ -e "/proc/$2" ]; }

# start FOLDER TRANSPORT: sets `launcher` and `began`.
start() {
    : > "$1.begun"
    tiny_exec=exec run_tiny "$1" 100000 $few --set run.transport="${2% *}" --set mesh.dp="${2#* }" > "$1.log" 2>&1 &
    launcher=$!
    until_true 30000 holds_signals $launcher || fail "$1: it does not hold signals"
    ms
    began=$now
}

# One job of a chain: signals it as `moment` says, waits, and looks at what came out. Sets `wrong`.
signalled() {
    local folder=$1 what=$2 transport=$3 at=$4 whom=$5 victim ranks code new
    local signal=$what
    [ "$what" != start ] || signal=USR1
    start "$folder" "$transport"
    [ "$what" = start ] || until_true 120000 stepped "$folder" $launcher || wrong="no step"
    nap "$at"
    victim=$launcher
    if [ "$whom" -ge 0 ]; then
        read -r -a ranks 2> /dev/null < "/proc/$launcher/task/$launcher/children"
        victim=${ranks[$whom]:-$launcher}
    fi
    kill -$signal "$victim" 2> /dev/null || wrong="it had ended"
    wait $launcher
    code=$?
    [ $code -eq 75 ] || wrong="exit code $code, expected 75"
    new=$(sed -n 's/.*stopped .* after step \([0-9]*\); the checkpoint is committed: .*/\1/p' "$folder.log" | sort -u)
    saved=$(grep -c "with nothing to save: start again" "$folder.log")
    [ -n "$new" ] || [ "$saved" -gt 0 ] || wrong="no word of the end"
    [ -n "$new" ] || [ "$what" = start ] || wrong="a step was done, and not saved"
    [ -z "$new" ] || [ "$saved" -eq 0 ] || wrong="one rank saved, another did not"
    [[ $new != *[!0-9]* ]] || wrong="ranks that stopped after different steps"
    ! grep -qE "died|killed|did not|timed out|failed|rror|corrupt|malloc|cannot|closed|waiting" "$folder.log" ||
        wrong="noise"
    local resumed
    resumed=$(sed -n 's/^resumed from step \([0-9]*\):.*/\1/p' "$folder.log")
    [ -z "$resumed" ] || [ "$resumed" = "$newest" ] || wrong="resumed from step $resumed, expected ${newest:-none}"
    [ -z "$new" ] || [ -z "$newest" ] || [ -n "$resumed" ] || wrong="it did not resume from step $newest"
    newest=${new:-$newest}
}

compared() {
    losses "$1" > "$1.txt"
    local lines=$(($(wc -l < "$1.txt")))
    [ $lines -gt 0 ] || wrong="no losses"
    [ $lines -le $longest ] || lines=$longest
    cmp -s <(head -n $lines "$1.txt") <(head -n $lines "$2") || wrong="another trajectory"
}

# chain NUMBER TRANSPORT: half of the jobs, ten to a folder. Leaves a line per job in chain.NUMBER.
chain() {
    local number=$1 transport=$2 n folder newest="" wrong saved first_step tenth=0
    start whole$number "$transport"
    until_true 120000 stepped whole$number $launcher
    ms
    first_step=$((now - began))
    wait_for steps_done whole$number $longest || wait_for steps_done whole$number $longest ||
        fail "$transport: the uninterrupted run"
    kill -TERM $launcher
    wait $launcher
    losses whole$number > whole$number.txt
    for ((n = 0; n < jobs / 2; ++n)); do
        RANDOM=$(((seed * 7919 + n * 2 + number) % 32768))
        local what=${pattern[$((n % 12))]} at=$((RANDOM % 60)) whom=-1 shown=launcher skip=$RANDOM
        [ "$what" != start ] || at=$((skip % (first_step + 1)))
        [ $((RANDOM % 3)) -ne 0 ] || { whom=$((RANDOM % ${transport#* })); shown="rank $whom"; }
        folder=at$number.$((n - tenth))
        wrong=
        signalled "$folder" "$what" "$transport" $at $whom
        if [ $tenth -eq 9 ] || [ $((n + 1)) -eq $((jobs / 2)) ] || [ "${newest:-0}" -gt $((longest - 200)) ] ||
            [ -n "$wrong" ]; then
            # The last one's checkpoint, too, is resumed from; and all steps have the losses of one run.
            [ -z "$newest" ] || [ -n "$wrong" ] || signalled "$folder" TERM "$transport" 0 -1
            [ -z "$newest" ] || [ -n "$wrong" ] || compared "$folder" whole$number.txt
            [ -n "$wrong" ] || rm -rf "$folder"
            tenth=-1
            newest=
        fi
        tenth=$((tenth + 1))
        [ -z "$wrong" ] || { echo "job $n of chain $number, seed $seed: $wrong"; tail -n 20 "$folder.log"; } >&2
        echo "$transport|$what|$([ "$saved" -gt 0 ] && echo nothing || echo saved)|${wrong:-right}|$n|$at|$shown" \
            >> chain.$number
    done
}

gloo="gloo 4"
[ -e "$(dirname "$orrery")/plugins/liborrery_transport_gloo.so" ] || gloo="shm 4"
echo "seed $seed"
ms
begun=$now
chain 0 "shm 2" &
first=$!
chain 1 "$gloo" &
second=$!
wait $first $second
cat chain.0 chain.1 > chains || fail "a chain did not end"
[ "$(wc -l < chains)" -eq $jobs ] || fail "$(wc -l < chains) jobs, expected $jobs"
table() {
    echo "transport ranks  signal at         jobs  saved  nothing to save  wrong"
    awk -F'|' '{ key = $1 "|" $2; jobs[key]++; kept[key] += $3 == "saved"; wrong[key] += $4 != "right" }
        END { for (key in jobs) {
            split(key, part, "|"); split(part[1], t, " ")
            at = part[2] == "start" ? "USR1 in the start" : part[2] " at a step"
            printf "%-9s %-6s %-18s %4d %6d %16d %6d\n", t[1], t[2], at, jobs[key], kept[key],
                jobs[key] - kept[key], wrong[key] } }' chains | sort
    echo "$jobs jobs, seed $seed: $(grep -c '|right|' chains) right, $(grep -vc '|right|' chains) wrong;" \
        "$(((now - begun) / 1000)) s, two at a time"
}
ms
table
[ -z "${ORRERY_LONG:-}" ] || table > "$ORRERY_LONG"
! grep -v '|right|' chains || fail "the jobs above: transport, signal, outcome, why, number, ms, whom"
echo "1 passed, 0 failed"
