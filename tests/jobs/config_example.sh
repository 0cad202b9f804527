#!/usr/bin/env bash
# The transports and collectives that configs/README.md shows, trained with as they stand there; what check lists.
source "$(dirname "$0")/lib.sh"
[ -e "$(dirname "$orrery")/plugins/liborrery_transport_ucx.so" ] || { echo "skipped: ucx is not built"; exit 77; }
awk '/^```toml/ { inside = 1; next } /^```/ { inside = 0 } inside' "$source_root/configs/README.md" > example.toml
grep -q '^\[collectives\]' example.toml || fail "configs/README.md has no example of [collectives]"
cat >> example.toml <<'TOML'
[mesh]
pp = 2
dp = 2
[data]
path = "text.txt"
tokens_per_sequence = 32
[train]
steps = 2
sequences_per_step = 8
microbatches = 2
[script]
layers = 2
embed = 48
heads = 3
TOML
for command in check "run --set run.folder=job"; do
    $orrery $command "$source_root/scripts/gpt.lua" --config example.toml > log.txt 2>&1 ||
        { cat log.txt; fail "$command of the example"; }
done
[ "$(losses job | wc -l)" -eq 2 ] || fail "no two steps"

# 5 ranks: ZeRO can split nothing of a width of 48, and says so with the size.
$orrery check "$source_root/scripts/gpt.lua" --set mesh.dp=5 --set data.path=text.txt --set train.steps=1 \
    --set data.tokens_per_sequence=32 --set train.sequences_per_step=5 --set script.layers=1 --set script.embed=48 \
    --set script.heads=3 --set script.zero=1 > log.txt 2>&1 || { cat log.txt; fail "check of ZeRO-1 over 5 ranks"; }
grep -qF "left: wpe.weight, 6.0 KiB: whole over dp=5: no dim divides (data, " log.txt ||
    { cat log.txt; fail "a param that stays whole is not listed with its size"; }
echo "config_example: ok"
