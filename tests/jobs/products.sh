#!/usr/bin/env bash
# Kinds of matrix products: named, measured once and kept, agreed on by ranks, those of a checkpoint; one that faults.
source "$(dirname "$0")/lib.sh"
export XDG_CACHE_HOME=$work/cache
kept=$XDG_CACHE_HOME/orrery/products

# must LOG COMMAND...: it succeeds.
must() {
    local log=$1
    shift
    "$@" > "$log" 2>&1 || { cat "$log"; fail "$log: exit code $?"; }
}
# says LOG PATTERN
says() { grep -q -- "$2" "$1" || { cat "$1"; fail "$1 does not say: $2"; }; }

# Under test nothing is measured; nor is by other commands than run.
must usual.log run_tiny usual 10
says usual.log "^products: onednn (ORRERY_CPU_PRODUCTS)$"
unset ORRERY_CPU_PRODUCTS
tiny=(--set data.path=text.txt --set data.tokens_per_sequence=32 --set data.validation=0.1 --set mesh.dp=2
    --set train.sequences_per_step=4 --set train.steps=2
    --set script.layers=2 --set script.embed=48 --set script.heads=3)
must check.log $orrery check "$source_root/scripts/gpt.lua" "${tiny[@]}"
must verify.log $orrery verify "$source_root/scripts/gpt.lua" "${tiny[@]}" --steps 1
must sample.log $orrery sample usual --prompt "3 plus" --tokens 5
[ ! -e "$XDG_CACHE_HOME" ] || fail "products were measured"
echo "nothing is measured under test, by check, verify and sample"

$orrery check "$source_root/scripts/gpt.lua" "${tiny[@]}" --set device.cpu.products=block > unknown.log 2>&1
[ $? -eq 2 ] || { cat unknown.log; fail "an unknown kind was taken"; }
says unknown.log "there are: onednn, native, blocks, or auto"

# Named: in the first lines, and in the manifest.
must half.log run_tiny half 10 --set device.cpu.products=blocks
says half.log "^products: blocks (device.cpu.products)$"
grep -rq '"products":"blocks"' half/checkpoints || fail "the manifest does not name the kind"
cp -r half auto
cp -r half other
must again.log run_tiny half 20 --set device.cpu.products=blocks
says again.log "resumed from step 10"
! grep -q "bits will differ" again.log || { cat again.log; fail "the kind is the checkpoint's"; }
losses half > half.txt
must other.log run_tiny other 20 --set device.cpu.products=onednn
says other.log "^products were blocks until step 10, from here on they are onednn (device.cpu.products): bits will "
grep -rq '"products":"onednn"' other/checkpoints || fail "the manifest does not name the new kind"
[ ! -e "$XDG_CACHE_HOME" ] || fail "products were measured where one is named"

# Measured once. Whichever is fastest here, a checkpoint's kind is taken again.
must auto.log run_tiny auto 20
says auto.log "^products: [a-z]*, [0-9.]* GFLOP/s of f32 on a rank (.*), kept in $kept/"
says auto.log "^products: blocks"
! grep -q "bits will differ" auto.log || { cat auto.log; fail "another kind than the checkpoint's"; }
losses auto | cmp - half.txt || fail "other losses with the checkpoint's kind"
[ "$(ls "$kept" | wc -l)" -eq 1 ] || fail "not one file for one machine and type"
must second.log run_tiny second 10
says second.log ", as kept in $kept/"
for file in "$kept"/*; do echo "{" > "$file"; done
must damaged.log run_tiny damaged 10
says damaged.log "^products: $kept/.* cannot be used, they are measured anew: not valid json"
must third.log run_tiny third 10
! grep -q "cannot be used" third.log || { cat third.log; fail "the damaged file is still there"; }
echo "measured once, kept, and measured anew where the file is damaged"

# Ranks that name different kinds.
port=$(free_port)
tiny_exec="as_rank 0 2 $port" run_tiny apart 10 --set device.cpu.products=onednn > rank0.log 2>&1 &
tiny_exec="as_rank 1 2 $port" run_tiny apart 10 --set device.cpu.products=blocks > rank1.log 2>&1
[ $? -eq 1 ] || { cat rank1.log; fail "ranks with different kinds went on"; }
wait
for log in rank0.log rank1.log; do
    says $log "no kind of matrix products that all ranks have"
    says $log "rank 1 on .*: blocks (device.cpu.products)"
done
echo "ranks with different kinds: refused"

# A device whose second kind faults, whatever its flags say.
plugins=$(dirname "$orrery")/tests/apart_plugins
if [ -e "$plugins/liborrery_device_apart.so" ]; then
    export ORRERY_APART_KINDS=1
    must faulty.log run_tiny faulty 5 --set mesh.dp=1 --set "plugins.path=[\"$plugins\"]" --set run.device=apart
    says faulty.log "^products: plain, .*faulty is no candidate: its trial was ended by signal 4 (Illegal instruction)"
    must kept.log run_tiny kept 5 --set mesh.dp=1 --set "plugins.path=[\"$plugins\"]" --set run.device=apart
    says kept.log "faulty is no candidate: its trial was ended by signal 4 (Illegal instruction)), as kept in"
    echo "a kind that faults: no candidate"
fi
echo "1 passed, 0 failed"
