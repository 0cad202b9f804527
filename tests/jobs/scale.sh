#!/usr/bin/env bash
# Plans for clusters: compiled, proved and judged here within 2 GiB of address space, starting nothing.
source "$(dirname "$0")/lib.sh"
root=$source_root
# checked CONFIG FILE: `orrery check` of it into FILE.
checked() {
    (ulimit -v 2097152; exec $orrery check "$root/scripts/gpt.lua" --config "$root/configs/$1") > "$2" 2>&1 ||
        { tail -5 "$2"; fail "check of $1"; }
    grep -q "the plan is complete and free of deadlock" "$2" || { tail -3 "$2"; fail "$1 was not proved"; }
}
says() { grep -qF -- "$2" "$1" || { head -20 "$1"; fail "no \"$2\" in $1"; }; }

checked llama70b.toml 70.txt
says 70.txt "mesh dp=1024"
peak_below 500 $orrery check "$root/scripts/gpt.lua" --config "$root/configs/llama70b.toml"
$orrery check "$root/scripts/gpt.lua" --config "$root/configs/llama70b.toml" --set device.memory_gib=80 > no.txt 2>&1
[ $? -eq 2 ] || { tail -3 no.txt; fail "70 billion parameters fit in 80 GiB"; }
says no.txt "needs 1.0 TiB per rank, device.memory_gib is 80: 947.9 GiB too much; largest: "

checked llama405b.toml 405.txt
says 405.txt "405,853,388,800 parameters, mesh pp=16 dp=128 tp=8 micro=16"
# Stages of four layers each hold as much while pipelines fill; each sends forward and backward, chunk by chunk.
says 405.txt "7,168 ranks of 7 streams (pp=1 to 7)"
says 405.txt "send over pp: 64 a step, 2.0 GiB sent"  # a rank of tp sends its part of the sequence
[ ! -e run ] || fail "a check wrote a folder"
echo "1 passed, 0 failed"
