#!/usr/bin/env bash
# The bundle for GPU hosts: gpu_check refuses without a GPU and says why, and runs what is built and nothing else; the
# bundle is made, is small, has no library that needs one outside it and the system's, and configures with every library
# its own. What is made needs a network: without one that part is skipped.
source "$(dirname "$0")/lib.sh"
check=$source_root/scripts/gpu_check
export ORRERY_BUILD=$work/gpu
if ! nvidia-smi > /dev/null 2>&1; then
    $check > none.log 2>&1 && fail "a check without a GPU"
    grep -q -E '^gpu +FAILED +(no nvidia-smi|nvidia-smi shows no GPU)' none.log || { cat none.log; fail "no reason"; }
    [ ! -e gpu/CMakeCache.txt ] || fail "it was configured all the same"
fi
$check --configure "$work/missing.tar.xz" > missing.log 2>&1 && fail "a bundle that is not there"
grep -q -E '^bundle +FAILED +cannot unpack .*scripts/bundle makes it' missing.log ||
    { cat missing.log; fail "no reason"; }
$check --bulid > usage.log 2>&1
[ $? -eq 2 ] || fail "an option that does not exist"

# --run over programs that say what is wanted of them, on a GPU that somebody else shows.
made=$work/made
mkdir -p "$made/bin" "$made/plugins"
program() {
    printf '#!/bin/bash\n%s\n' "$2" > "$made/$1" && chmod +x "$made/$1"
}
program bin/nvidia-smi '[ "$1" = -L ] && echo "GPU 0" || echo "a GPU, 1.0, 80 MiB"'
program bin/compute-sanitizer 'echo "Error: Device not supported"; exit 1'
program bin/python3 'case "$*" in *import*) exit 1 ;; *trajectories*) sleep 1; echo 20 losses ;; *) exit 1 ;; esac'
program orrery 'exit 0'
program gpu_tests 'echo "all of $*"'
program gpu_kernel_tests 'case "$1" in ~*) exit 0 ;; esac; echo "1 of them failed"; exit 1'
program bench_kernels 'echo "no GPU"; exit 77'
mkdir out
ran() {
    PATH=$made/bin:$PATH ORRERY_BUILD=$made ORRERY_PYTHON=$made/bin/python3 OUT=$work/out $check --run > run.log 2>&1
}
ran && fail "a failed line, and exit code 0"
for line in 'gpu +ok +a GPU, 1.0' 'pytorch +skipped' 'device and plans +ok +all of ~\[nccl\] \([0-9]+ s\)' \
    'kernels +FAILED +1 of them failed' 'products and attention +ok' 'compute-sanitizer +skipped +Error: Device not' \
    'trajectories +ok +20 losses' 'nccl +skipped +not built' 'kernel rates +FAILED +no GPU' 'training +FAILED'; do
    grep -q -E "^$line" out/table.txt || { cat run.log; fail "no line: $line"; }
done
! grep -E '^(bundle|configure|build|libraries) ' out/table.txt || fail "--run did more than run"
tar -tzf out/logs.tar.gz | grep -q kernels.log || fail "the logs are not in OUT"
# Its parts run no other lines, and the models that are asked for.
part() {
    PATH=$made/bin:$PATH ORRERY_BUILD=$made ORRERY_PYTHON=$made/bin/python3 $check "$@" > part.log 2>&1
    sed -n '/logs in/,$p' part.log | sed -nE 's/^([a-z][a-z -]*[a-z]) +(ok|FAILED|skipped) .*/\1/p' | paste -sd,
}
of_tests="gpu,device and plans,kernels,products and attention,compute-sanitizer,trajectories,kernel rates"
[ "$(part --tests)" = "$of_tests" ] || { cat part.log; fail "--tests"; }
[ "$(part --peers)" = "gpu,nccl" ] || { cat part.log; fail "--peers"; }
program bin/python3 'case "$*" in *import*) exit 1 ;; *) echo "given $*" ;; esac'
[ "$(part --train one two)" = "gpu,pytorch,training" ] && [ -s "$made/gpu_check-peers/table.txt" ] &&
    [ -s "$made/gpu_check-train-one-two/table.txt" ] && grep -q "given .*--models one,two --limit" part.log ||
    { cat part.log; fail "--train"; }
$check --peers 10 > usage.log 2>&1
[ $? -eq 2 ] || fail "--peers with more"
rm "$made/gpu_tests"
ran && fail "--run without its programs"
$check --run soon > usage.log 2>&1
[ $? -eq 2 ] || fail "--run with a time that is none"
grep -q -E '^build +FAILED +there is no .*/gpu_tests; --build makes it' run.log || { cat run.log; fail "no reason"; }

# The one that lies in the repository, or a new one.
bundle=$source_root/gpu_bundle.tar.xz
if [ ! "$bundle" -nt "$source_root/scripts/bundle" ]; then
    bundle=$work/bundle.tar.xz
    timeout 45 "$source_root/scripts/bundle" "$bundle" > bundle.log 2>&1
    status=$?
    [ $status -ne 124 ] || { echo "skipped: making the bundle took more than 45 s, most of it downloads"; exit 77; }
    ! grep 'apt-get download failed' bundle.log || { echo "skipped: no packages without a network"; exit 77; }
    [ $status -eq 0 ] || { cat bundle.log; fail "no bundle"; }
    cat bundle.log
fi
[ "$(stat -c %s "$bundle")" -le 60000000 ] || fail "more than 60 MB"
mkdir tree && tar -C tree -xJf "$bundle" || fail "it does not unpack"
broken=$(find tree -xtype l | head -n 3)
[ -z "$broken" ] || fail "links that lead nowhere: $broken"
host="libc libm libdl librt libpthread libstdc++ libgcc_s ld-linux-x86-64"
for library in $(find tree -name '*.so*' -type f); do
    for needed in $(objdump -p "$library" | awk '$1 == "NEEDED" { print $2 }'); do
        case " $host " in *" ${needed%%.so*} "*) continue ;; esac
        [ -e "tree/usr/lib/x86_64-linux-gnu/$needed" ] || fail "${library##*/} needs $needed, which is not there"
    done
done

command -v nvcc > /dev/null || [ -x /usr/local/cuda/bin/nvcc ] || { echo "no CUDA toolkit: not configured"; exit 0; }
$check --configure "$bundle" || { cat gpu/gpu_check/configure.log; fail "it does not configure"; }
$check --configure "$work/missing.tar.xz" > missing.log 2>&1 && fail "after a good one, a bundle that is not there"
grep -q -E '^bundle +FAILED ' missing.log || { cat missing.log; fail "no reason"; }
system=$(grep -E '^[A-Za-z0-9_]*(library|include|_DIR|LIBRARY|INCLUDE_DIR)[^=]*=/' gpu/CMakeCache.txt |
    grep -v -i -E 'cuda|cublas|cudnn|nccl|gomp|ucx|ucp|ucs|^orrery_(SOURCE|BINARY)|^CMAKE' | grep -v "=$work/gpu/deps/")
[ -z "$system" ] || fail "not the bundle's: $system"
