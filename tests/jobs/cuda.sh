#!/usr/bin/env bash
# Where there is no GPU: the plugins say why in one sentence, plans for GPUs are proved all the same, and a run refuses.
source "$(dirname "$0")/lib.sh"
list=$($orrery plugins) || fail "orrery plugins"
broken=$(echo "$list" | grep -A1 -E '^  (device/cuda|transport/nccl) +cannot be used' |
    grep -v -e "cannot be used" -e "not included in this build" -e '^--$')
[ -z "$broken" ] || fail "a plugin that was built does not load: $broken"
reason=$(echo "$list" | grep -A1 -E '^  device/cuda ' | tail -n 1 | sed 's/^ *//')
echo "device/cuda: $reason"
case $reason in
"cannot run here: "*) reason=${reason#cannot run here: } ;;
"not included in this build: "*) reason="not included in this build" ;;
*) echo "skipped: there is a GPU here"; exit 77 ;;
esac
[ "$(echo "$reason" | wc -l)" -eq 1 ] || fail "the reason has several lines"
echo "$list" | grep -A1 -E '^  transport/nccl ' | grep -q -E 'cannot run here: .|not included in this build: .' ||
    fail "orrery plugins does not say why nccl cannot run"

run_tiny none 5 --set mesh.dp=1 --set run.device=cuda > run.log 2>&1 && fail "a run on a GPU that is not there"
grep -q -F "$reason" run.log || { cat run.log; fail "the run does not say why"; }
[ ! -e none/metrics.jsonl ] || fail "something was written"
grep -E "cuda|GPU" run.log | head -n 3
mkdir kept && touch kept/mine
run_tiny kept 5 --fresh --set mesh.dp=1 --set run.device=cuda > fresh.log 2>&1 && fail "a fresh run on no GPU"
[ -e kept/mine ] && [ ! -e kept.1 ] || fail "the folder was moved for a run that cannot be"

# The device is all that changes: the transport follows, where nobody named one.
[ "$reason" != "not included in this build" ] || exit 0
$orrery check "$source_root/scripts/gpt.lua" --config "$source_root/configs/eight_gpus.toml" --set data.path= \
    > check.log 2>&1 ||
    { cat check.log; fail "a plan for eight GPUs was not proved"; }
grep "checked:" check.log
grep -q '\[transport.nccl\]' check.log || { cat check.log; fail "another transport than nccl"; }
$orrery check "$source_root/scripts/gpt.lua" --config "$source_root/configs/eight_gpus.toml" --set run.device=cpu \
    --set run.transport=nccl --set data.path= \
    > refused.log 2>&1 && fail "nccl was taken for the CPU's memory"
grep 'transport "nccl" supports the memory of cuda' refused.log ||
    { cat refused.log; fail "the refusal does not say why"; }
