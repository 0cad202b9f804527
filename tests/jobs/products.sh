#!/usr/bin/env bash
# Kinds of matrix products: named, recorded, the same on all ranks; `orrery products`; one that faults.
source "$(dirname "$0")/lib.sh"

# must LOG COMMAND...: it succeeds.
must() {
    local log=$1
    shift
    "$@" > "$log" 2>&1 || { cat "$log"; fail "$log: exit code $?"; }
}
# says LOG PATTERN
says() { grep -q -- "$2" "$1" || { cat "$1"; fail "$1 does not say: $2"; }; }

refused "there are: onednn, native, blocks" run_tiny unknown 10 --set device.cpu.products=block
refused "there are: onednn, native, blocks" run_tiny unknown 10 --set device.cpu.products=auto

# The default is not mentioned, another kind is, and the manifest has either.
must usual.log run_tiny usual 10
! grep -q "^products:" usual.log || { cat usual.log; fail "the default is mentioned"; }
grep -rq '"products":"onednn"' usual/checkpoints || fail "the manifest does not name the default"
must half.log run_tiny half 10 --set device.cpu.products=blocks
says half.log "^products: blocks$"
grep -rq '"products":"blocks"' half/checkpoints || fail "the manifest does not name the kind"
cp -r half other
must again.log run_tiny half 20 --set device.cpu.products=blocks
says again.log "resumed from step 10"
! grep -q "products was" again.log || { cat again.log; fail "the kind is the checkpoint's"; }
must other.log run_tiny other 20
says other.log "^products was blocks and is onednn: the losses after step 10 will differ in the last bits"
grep -rq '"products":"onednn"' other/checkpoints || fail "the manifest does not name the new kind"

# Ranks that name different kinds.
port=$(free_port)
tiny_exec="as_rank 0 2 $port" run_tiny apart 10 --set device.cpu.products=onednn > rank0.log 2>&1 &
tiny_exec="as_rank 1 2 $port" run_tiny apart 10 --set device.cpu.products=blocks > rank1.log 2>&1
[ $? -eq 2 ] || { cat rank1.log; fail "ranks with different kinds went on"; }
wait
for log in rank0.log rank1.log; do says $log "products: blocks, rank 0 has onednn"; done
echo "ranks with different kinds: refused"

# A table of this machine, with a line that says which to set.
must table.txt $orrery products --threads 1 --types f32
for kind in onednn native blocks; do says table.txt "^f32   $kind "; done
tail -n 1 table.txt | grep -qE "^(set device.cpu.products=|onednn, the default library, is within)" ||
    { cat table.txt; fail "the table does not say which to set"; }
refused "--types f8e4m3|expected f32, bf16 or f16" $orrery products --types f8e4m3

# A device whose second kind faults, whatever its flags say.
plugins=$(dirname "$orrery")/tests/apart_plugins
if [ -e "$plugins/liborrery_device_apart.so" ]; then
    export ORRERY_APART_KINDS=1
    must faulty.txt $orrery products --device apart --types f32 --set "plugins.path=[\"$plugins\"]"
    says faulty.txt "^f32   plain    [0-9]"
    says faulty.txt "^f32   faulty   not usable: its trial was ended by signal 4 (Illegal instruction)$"
    tail -n 1 faulty.txt | grep -q "^plain, the default library, is within" || { cat faulty.txt; fail "which to set"; }
    echo "a kind that faults: not usable"
fi
echo "1 passed, 0 failed"
