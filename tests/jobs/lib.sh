# Shared by the job tests: a tiny corpus, a tiny GPT, and checks. Sourced, not run.
set -u
source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
orrery=${ORRERY_PROGRAM:-$source_root/build/orrery}
work=$(mktemp -d)
trap 'jobs -p | xargs -r kill -9 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# missing_word WORDS TEXT: the first of the words (separated by |) that the text lacks, nothing where it has all.
missing_word() {
    local word
    while read -r -d '|' word; do
        [[ $2 == *"$word"* ]] || { echo "$word"; return; }
    done <<< "$1|"
}

# exits CODE NAME COMMAND...: what it says goes to NAME.txt and NAME.err.
exits() {
    local code=$1 name=$2 found
    shift 2
    "$@" > "$name.txt" 2> "$name.err"
    found=$?
    [ $found -eq "$code" ] || { cat "$name.txt" "$name.err"; fail "$*: exit code $found, expected $code"; }
}
# refused WORDS COMMAND...: exit code 2, and the words (separated by |) in what it says. Jobs that look at more have
# their own.
refused() {
    local words=$1 missing
    shift
    exits 2 refused "$@"
    missing=$(missing_word "$words" "$(cat refused.txt refused.err)")
    [ -z "$missing" ] || { cat refused.txt refused.err; fail "the message lacks \"$missing\""; }
}
# sizes NAME: ranks and sequences of each row of a table of `orrery scale`.
sizes() { awk '$1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ { print $1, $2 }' "$1.txt" | tr '\n' ';'; }

# peak_below MB COMMAND...: runs the command, which prints to peak.log, and bounds its peak resident memory;
# `processor_s=10 peak_below ...` also bounds its processor time, which is only printed otherwise.
peak_below() {
    command -v python3 > /dev/null || { echo "not measured: peak memory, python3 is not here"; return 0; }
    PYTHONPATH=$source_root/tests/jobs python3 -B - "${processor_s:-inf}" "$@" <<'PYTHON' || \
        fail "peak memory: $(tail -1 peak.log)"
import resource, sys
from measured import measured
most, limit, command = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
status, seconds, peak = measured(command, "peak.log")
used = resource.getrusage(resource.RUSAGE_CHILDREN)
processor = used.ru_utime + used.ru_stime
said = f"{peak / 1000:.0f} MB at most, {seconds:.2f} s, {processor:.2f} s of processor time, exit code {status >> 8}"
print(said)
if status != 0 or peak > limit * 1000 or processor > most:
    open("peak.log", "a").write(f"{said}; expected 0, at most {limit} MB and {most:g} s of processor time\n")
    sys.exit(1)
PYTHON
}

# 60 kB of text that a model can learn something from.
awk 'BEGIN {
    for (i = 0; i < 1500; ++i) printf "%d plus %d makes %d and so it is written\n", i % 37, i % 11, i % 37 + i % 11
}' > text.txt

# run_tiny FOLDER STEPS [more arguments]: two ranks unless told otherwise.
# In the background, `tiny_exec=exec run_tiny ... &` makes $! the launcher itself. `tiny_bound= run_tiny ...` leaves
# run.timeout_s out; `tiny_script=FILE` is another script.
run_tiny() {
    local folder=$1 steps=$2
    shift 2
    ${tiny_exec:-} $orrery run "${tiny_script:-$source_root/scripts/gpt.lua}" --set run.folder="$folder" \
        --set run.seed=5 --set mesh.dp=2 \
        --set data.path=text.txt --set data.tokens_per_sequence=32 --set data.validation=0.1 \
        --set train.sequences_per_step=4 --set train.steps="$steps" \
        --set train.evaluate_every=20 --set train.evaluate_batches=2 \
        --set checkpoint.every_steps=10 --set script.layers=2 --set script.embed=48 --set script.heads=3 \
        --set script.warmup=5 ${tiny_bound---set run.timeout_s=20} "$@"
}

# trained_in FOLDER COMMAND...: `orrery run` of the command, which must pass; it prints to FOLDER.log.
trained_in() {
    local folder=$1
    shift
    $orrery run "$@" --set run.folder="$folder" > "$folder.log" 2>&1 ||
        { local code=$?; tail -20 "$folder.log"; fail "$folder: exit code $code"; }
}

# other_code KIND_NAME FOLDER: a copy of a plugin there whose digest is of other code.
other_code() {
    python3 - "$(dirname "$orrery")/plugins/liborrery_$1.so" "$2/liborrery_$1.so" \
        "$($orrery --version | awk -v name="${1/_//}" '$1 == name { print $2 }')" << 'PY' || fail "no copy of $1"
import os, sys
before, after, digest = sys.argv[1:]
code = open(before, "rb").read()
other = bytes.fromhex(digest)
assert len(other) == 20 and code.count(other) == 1
open(after, "wb").write(code.replace(other, bytes([other[0] ^ 255]) + other[1:]))
PY
}

# The exact losses, one line a step: the JSON numbers read back to the same bits.
losses() {
    grep -v eval_loss "$1/metrics.jsonl" | sed -E 's/.*"step":([0-9]+),"loss":([^,]+),"grad_norm":([^,]+).*/\1 \2 \3/'
}

# wait_for COMMAND...: up to 30 s.
wait_for() {
    local i
    for i in $(seq "${patience:-1500}"); do
        "$@" && return 0
        sleep 0.02
    done
    return 1
}

steps_done() { [ -f "$1/metrics.jsonl" ] && [ "$(grep -c '"loss"' "$1/metrics.jsonl")" -ge "$2" ]; }

# The processes of a launcher's ranks, rank 0 first.
ranks_of() { pgrep -P "$1" || true; }
two_ranks() { [ "$(ranks_of "$1" | wc -l)" -eq 2 ]; }

# A port of this host that nobody listens on.
free_port() {
    local port
    while :; do
        port=$((20000 + RANDOM % 10000))
        (: < /dev/tcp/127.0.0.1/$port) 2> /dev/null || break
    done
    echo $port
}

# as_rank RANK RANKS PORT COMMAND...: in the environment that torchrun gives, where rank 0 serves the rendezvous.
as_rank() {
    local rank=$1 ranks=$2 port=$3
    shift 3
    env RANK="$rank" WORLD_SIZE="$ranks" LOCAL_RANK="$rank" LOCAL_WORLD_SIZE="$ranks" MASTER_ADDR=127.0.0.1 \
        MASTER_PORT="$port" ORRERY_TOKEN=a-secret-of-this-test "$@"
}
