#!/usr/bin/env bash
# Whole jobs on the stand-in: a small GPT in f32 on one rank and on two has the losses of the CPU, its step captured
# and not; over dp, with params gathered ahead of their readers, and over pp, whose messages go in groups.
source "$(dirname "$0")/../jobs/lib.sh"
export XDG_CACHE_HOME=$work/cache
export MALLOC_TRIM_THRESHOLD_=268435456  # the emulator's stacks stay in the heap between kernels
on_gpu() {
    local name=$1 steps=$2
    shift 2
    run_tiny "$name" "$steps" --set "plugins.path=[\"$ORRERY_STANDIN\"]" --set run.device=cuda "$@" \
        > "$name.log" 2>&1 || { cat "$name.log"; fail "$name"; }
}
on_cpu() {
    local name=$1 steps=$2
    shift 2
    run_tiny "$name" "$steps" --set run.threads_per_rank=1 "$@" > "$name.log" 2>&1 ||
        { cat "$name.log"; fail "$name"; }
}

# near JOB OTHER: losses within 1e-5 of each other's, at every step.
near() {
    losses "$1" > one.txt
    losses "$2" > other.txt
    [ "$(wc -l < one.txt)" -eq 20 ] || { cat "$1.log"; fail "$1: no 20 step lines"; }
    paste one.txt other.txt | awk '
        function far(a, b) { return a != a || (a > b ? a - b : b - a) > 1e-5 * b }
        $1 != $4 || far($2, $5) { print "step " $1 ": loss " $2 ", not " $5; bad = 1 }
        END { exit bad }' || fail "$1: other losses than $2"
    echo "$1: 20 steps with the losses of $2"
}
captured() { grep -q "the step is captured" "$1.log" || { cat "$1.log"; fail "$1: the step is not captured"; }; }
not_captured() {
    grep -q "the step is not captured.*device.cuda.graph is false" "$1.log" ||
        { cat "$1.log"; fail "$1: nothing says that the step is not captured"; }
}

one=(--set mesh.dp=1)
on_cpu cpu 20 "${one[@]}"
on_gpu one 20 "${one[@]}"
captured one
near one cpu
on_gpu plain 20 "${one[@]}" --set device.cuda.graph=false
not_captured plain
near plain cpu
cmp <(losses plain) <(losses one) || fail "a captured step has other bits"

# Sums in any order: told in the first lines, recorded, and told again where a run goes on in a fixed order.
any=(--set device.cuda.deterministic=false)
on_gpu any 20 "${one[@]}" "${any[@]}"
near any cpu
grep -q "order of sums: any (device.cuda.deterministic = false); a repeated run differs" any.log ||
    { cat any.log; fail "any: the first lines do not say that sums have no fixed order"; }
grep -q '"order of sums": *"any (device.cuda.deterministic = false)"' any/run.json || fail "any: run.json"
on_gpu any 21 "${one[@]}"
grep -q "order of sums was any .* and is fixed.*will differ in the last bits" any.log ||
    { cat any.log; fail "any: a resume in a fixed order does not say that bits will differ"; }
grep -q "order of sums: " one.log && { cat one.log; fail "one: says that its sums have no fixed order"; }

two=(--set run.transport=nccl)
on_gpu two 20 "${two[@]}"
captured two
near two cpu
on_gpu apart 20 "${two[@]}" --set device.cuda.graph=false
not_captured apart
near apart cpu
on_gpu zero 20 "${two[@]}" --set script.zero=3
captured zero
grep -q "gathers over dp run 1 layer ahead" zero.log || { cat zero.log; fail "zero: gathers do not run ahead"; }
near zero cpu
on_gpu stages 20 "${two[@]}" --set mesh.dp=1 --set mesh.pp=2 --set train.microbatches=2
captured stages
near stages cpu

# Of ranks that another launcher started each may see a GPU of its own: it has number 0 for all. More GPUs than one,
# but fewer than ranks, are refused by every rank; so is one for two ranks of `orrery run`, which all see the same.
port=$(free_port)
for rank in 0 1; do
    tiny_exec="as_rank $rank 2 $port env ORRERY_STANDIN_GPUS=1
        ORRERY_STANDIN_FIRST_GPU=$rank" on_gpu own 20 "${two[@]}" &
    ranks[rank]=$!
done
wait "${ranks[0]}" && wait "${ranks[1]}" || fail "own: a rank with a GPU of its own"
near own two
for gpus in 1 2; do
    launcher="env ORRERY_STANDIN_GPUS=$gpus"
    [ $gpus -eq 1 ] || launcher="as_rank 0 4 $port env ORRERY_STANDIN_GPUS=2"
    tiny_exec=$launcher run_tiny few 20 --set "plugins.path=[\"$ORRERY_STANDIN\"]" --set run.device=cuda \
        --set mesh.dp=$((2 * gpus)) "${two[@]}" > few.log 2>&1 && fail "few: $gpus GPUs for $((2 * gpus)) ranks"
    grep -q "rank [01] of the $((2 * gpus)) on this host sees $gpus GPU" few.log ||
        { cat few.log; fail "few: the message lacks both numbers"; }
done

# A rank is placed near its GPU: hwloc is told of two sockets, with the first GPU at the second.
node() {
    local type=$1 number=$2 mask=$3
    echo "<object type=\"$type\" os_index=\"$number\" cpuset=\"$mask\" complete_cpuset=\"$mask\" nodeset=\"0x1\"" \
        "complete_nodeset=\"0x1\" gp_index=\"$((++index))\"${4:-}>"
}
sockets() {
    local index=0 at
    printf '%s\n' '<?xml version="1.0" encoding="UTF-8"?>' '<!DOCTYPE topology SYSTEM "hwloc2.dtd">' \
        '<topology version="2.0">'
    node Machine 0 0x3 ' allowed_cpuset="0x3" allowed_nodeset="0x1"'
    node NUMANode 0 0x3 ' local_memory="1024"/'
    for at in 0 1; do
        node Package $at 0x$((at + 1)); node Core $at 0x$((at + 1)); node PU $at 0x$((at + 1)) /; echo "</object>"
        echo "<object type=\"Bridge\" gp_index=\"$((++index))\" bridge_type=\"0-1\" depth=\"0\"" \
            "bridge_pci=\"0000:[0$((2 - at))-0$((2 - at))]\">"
        echo "<object type=\"PCIDev\" gp_index=\"$((++index))\" pci_busid=\"0000:0$((2 - at)):00.0\"" \
            'pci_type="0302 [10de:2330] [10de:0000] a1" pci_link_speed="0.0"/>'
        printf '</object>\n</object>\n'
    done
    printf '</object>\n</topology>\n'
}
allowed() { awk '/^Cpus_allowed_list/ { print $2 }' "/proc/$1/status"; }
if [ "$(allowed self)" = 0-1 ]; then
    sockets > sockets.xml
    tiny_exec="exec env HWLOC_XMLFILE=$PWD/sockets.xml" on_gpu near 100000 "${two[@]}" &
    launcher=$!
    wait_for steps_done near 1 || { cat near.log; fail "near: no step"; }
    mapfile -t ranks < <(ranks_of $launcher)
    [ "$(allowed "${ranks[0]}") $(allowed "${ranks[1]}")" = "1 0" ] ||
        fail "near: the ranks run on $(allowed "${ranks[0]}") and $(allowed "${ranks[1]}"), not on 1 and 0"
    kill -TERM $launcher
    wait $launcher
    echo "near: each rank on the socket of its GPU"
else
    echo "skipped: ranks near their GPUs: the processors here are not 0 and 1"
fi

# Saves beside the steps, copied by a queue beside them: the bytes of saves that hold them, captured and not, on every
# mesh; and a run goes on from one. A download takes longer than a step here: what does not wait for it changes it.
objects() {
    (cd "$1/checkpoints/step-0000000$2" && sha256sum ./*.safetensors) > "$1.$2.txt" || fail "$1: no objects of step $2"
}
saved() {
    local name=$1
    shift
    for how in true false; do
        ORRERY_STANDIN_DOWNLOAD_MS=300 on_gpu "$name-$how" 8 --set checkpoint.every_steps=3 \
            --set checkpoint.keep_every_steps=3 --set checkpoint.async=$how "$@"
        for step in 3 6 8; do objects "$name-$how" $step; done
    done
    grep -q "made during the next step, by the device's queue of copies" "$name-true.log" ||
        { cat "$name-true.log"; fail "$name: no copy by a queue"; }
    for step in 3 6 8; do
        cmp "$name-true.$step.txt" "$name-false.$step.txt" || fail "$name: other bytes of step $step"
    done
    echo "$name: the same bytes beside the steps"
}
saved saves "${one[@]}"
captured saves-true
saved plain_saves "${one[@]}" --set device.cuda.graph=false
for zero in 1 3; do
    saved zero$zero "${two[@]}" --set script.zero=$zero --set train.microbatches=2
    captured zero$zero-true
done
saved stage_saves "${two[@]}" --set mesh.dp=1 --set mesh.pp=2 --set train.microbatches=2
for how in true false; do
    on_gpu saves-$how 20 "${one[@]}" --set checkpoint.every_steps=3 --set checkpoint.async=$how
    grep -q "resumed from step 8" saves-$how.log || { cat saves-$how.log; fail "saves-$how: did not go on"; }
done
cmp <(losses saves-true) <(losses saves-false) || fail "a run that goes on has other bits"
[ "$(losses saves-true | wc -l)" -eq 20 ] || fail "saves-true: no 20 step lines"
