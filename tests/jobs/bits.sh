#!/usr/bin/env bash
# What the last bits of losses depend on is recorded, and a line at the start says where it differs: from the checkpoint
# that is resumed, or between ranks. Nothing differs: no line.
source "$(dirname "$0")/lib.sh"
lines() { grep -e "in the last bits" -e "may compute different bits" "$1"; }
# must LOG COMMAND...: it succeeds.
must() {
    local log=$1
    shift
    "$@" > "$log" 2>&1 || { cat "$log"; fail "$log: exit code $?"; }
}
# says LOG LINE: one line of this kind, and it is this one.
says() { [ "$(lines "$1")" = "$2" ] || { cat "$1"; fail "$1 does not say: $2"; }; }
silent() { ! lines "$1" || { cat "$1"; fail "$1: a line where nothing differs"; }; }
alone() {
    local log=$1 folder=$2 steps=$3
    shift 3
    must "$log" run_tiny "$folder" "$steps" --set mesh.dp=1 --set train.evaluate_every=0 "$@"
}
host=$(uname -n)

# The digests that the command prints are those of the files.
exits 0 version $orrery --version
grep -q "^orrery [0-9]" version.txt || { cat version.txt; fail "no version"; }
grep -Eq "^  liborrery +[0-9a-f]{40} .*/liborrery[.]so$" version.txt ||
    { cat version.txt; fail "no digest of liborrery"; }
grep -Eq "^  device/cpu +[0-9a-f]{40} " version.txt || { cat version.txt; fail "no digest of device/cpu"; }
mkdir other
other_code device_cpu other
other=$PWD/other/liborrery_device_cpu.so
was=$($orrery plugins | awk '$1 == "device/cpu" { print $3 }')
is=$($orrery plugins other | awk '$1 == "device/cpu" { print $3 }')
[ ${#was} -eq 12 ] && [ ${#is} -eq 12 ] && [ "$was" != "$is" ] || fail "digests of plugins: \"$was\", \"$is\""

# The same threads by another way: no line. Others: one line.
alone first.log first 10 --set run.threads_per_rank=1
silent first.log
grep -rq '"threads_per_rank":"1"' first/checkpoints || fail "the manifest does not name the threads"
python3 - first/run.json version.txt << 'PY' || fail "run.json does not name code and threads"
import json, sys
run = json.load(open(sys.argv[1]))
code = {line.split()[0]: line.split()[1] for line in open(sys.argv[2]) if line.startswith("  ")}
assert run["digest"] == run["bits"]["liborrery"] == code["liborrery"], run
assert all(p["digest"] == code[p["name"]] == run["bits"][p["name"]] for p in run["plugins"]), run
assert run["bits"]["threads_per_rank"] == "1" and run["bits"]["instructions"] and run["bits_differ"] == [], run
PY
for copy in threads code isa mesh; do cp -r first $copy; done
must same.log taskset -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" bash -c "$(declare -f run_tiny)
    orrery='$orrery' source_root='$source_root'
    run_tiny first 20 --set mesh.dp=1 --set train.evaluate_every=0"
grep -q "resumed from step 10" same.log || { cat same.log; fail "it did not resume"; }
silent same.log
alone threads.log threads 20 --set run.threads_per_rank=2
says threads.log "threads_per_rank was 1 and is 2: the losses after step 10 will differ in the last bits"
grep -rq '"threads_per_rank":"2"' threads/checkpoints || fail "the manifest does not name the new threads"
echo "threads: recorded, and a line where they change"

# Other code, or other instructions.
alone code.log code 20 --set run.threads_per_rank=1 --set "plugins.path=[\"other\"]"
code="the code of $other on host $host was $was and is $is"
says code.log "$code: the losses after step 10 may differ in the last bits"
cmp <(losses first) <(losses code) || fail "a library of the same code has other losses"
if grep -q '"instructions": "avx' first/run.json; then
    export ORRERY_CPU_ISA=portable
    alone isa.log isa 20 --set run.threads_per_rank=1
    unset ORRERY_CPU_ISA
    lines isa.log | grep -q "^instructions was avx[0-9]* and is portable: the losses after step 10 may differ" ||
        { cat isa.log; fail "no line on other instructions"; }
fi
echo "code and instructions: a line where they change"

# Another mesh.
must mesh.log run_tiny mesh 20 --set mesh.dp=2 --set train.evaluate_every=0 --set run.threads_per_rank=1
says mesh.log "mesh was dp=1 and is dp=2: the losses after step 10 will differ in the last bits"

# A rank with other code: it is named, and trains on.
pair() {
    local rank=$1 port=$2
    shift 2
    as_rank "$rank" 2 "$port" $orrery run "$source_root/scripts/gpt.lua" --set run.folder=pair --set mesh.dp=2 \
        --set data.path=text.txt --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 \
        --set train.steps=5 --set script.layers=1 --set script.embed=16 --set script.heads=2 \
        --set run.threads_per_rank=1 --set run.timeout_s=60 "$@"
}
port=$(free_port)
pair 0 "$port" > pair0.log 2>&1 &
first=$!
pair 1 "$port" --set "plugins.path=[\"other\"]" > pair1.log 2>&1 || { cat pair0.log pair1.log; fail "rank 1"; }
wait $first || { cat pair0.log pair1.log; fail "rank 0"; }
says pair0.log "rank 1 on host $host and rank 0 on host $host may compute different bits: $other:$(
    ) digest $is, rank 0 has $was"
[ "$(losses pair | wc -l)" -eq 5 ] || fail "it did not train on"
echo "ranks with other code: named, and trained"
echo "1 passed, 0 failed"
