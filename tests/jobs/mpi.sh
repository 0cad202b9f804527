#!/usr/bin/env bash
# `orrery submit --engine mpi` on one host, by each mpirun that is installed: two ranks with the losses of `orrery run`;
# status, stop after a save, and what is refused before a rank starts.
source "$(dirname "$0")/lib.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
tiny() {
    $orrery $1 "$source_root/scripts/gpt.lua" --config job.toml --set run.folder="$2" --set train.steps="$3" \
        --set run.seed=5 --set run.threads_per_rank=1 --set mesh.dp=2 --set data.path=text.txt \
        --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set checkpoint.every_steps=10 \
        --set script.layers=2 --set script.embed=48 --set script.heads=3 "${@:4}"
}
submit() { tiny "submit --engine mpi" "$@"; }
touch job.toml
tiny run one 12 > one.log 2>&1 || { cat one.log; fail "two ranks of orrery run"; }
losses one > one.txt
tried=0
for family in openmpi hydra; do
    program= other=hydra
    [ $family = openmpi ] || other=openmpi
    for name in mpirun mpirun.openmpi mpirun.mpich mpiexec.hydra; do
        command -v $name > /dev/null || continue
        case $family-$($name --version 2>&1) in openmpi-*"Open MPI"* | hydra-*HYDRA*) program=$name && break ;; esac
    done
    [ -n "$program" ] || { echo "skipped: no mpirun of the family $family"; continue; }
    tried=$((tried + 1))
    printf '[submit.mpi]\nfamily = "%s"\nprogram = "%s"\n' $family $program > job.toml
    [ $family = hydra ] || echo 'extra = ["--oversubscribe"]' >> job.toml
    submit $family 12 > $family.log 2>&1 || { cat $family.log; fail "$family"; }
    losses $family | cmp - one.txt || fail "$family: other losses"
    refused "$program is not of the family $other|set submit.mpi.family" submit bad 12 --set submit.mpi.family=$other
    [ ! -e bad/metrics.jsonl ] || fail "ranks of the wrong family have started"

    submit long-$family 1000000 > long.log 2>&1 &
    wait_for steps_done long-$family 5 || { cat long.log; fail "$family: no step"; }
    exits 0 status $orrery status long-$family
    grep -q "mpirun runs" status.txt || { cat status.txt; fail "$family: status"; }
    exits 0 stop $orrery stop long-$family
    wait $!
    [ $? = 75 ] || { cat stop.txt long.log; fail "$family: stop does not end it with 75"; }
    grep -q "the checkpoint is committed" long.log || { cat long.log; fail "$family: stop does not save"; }
    exits 0 status $orrery status long-$family
    grep -q "mpirun of this job has ended" status.txt || { cat status.txt; fail "$family: status of a job that ended"; }
    exits 1 late $orrery stop long-$family
    ! grep -q "was asked to save" late.txt || { cat late.txt; fail "$family: stop of a job that ended"; }
    echo "$family, $program: the losses of orrery run; stopped after a save"
done
[ $tried -gt 0 ] || exit 77
refused "there is no program no-mpirun|install it" submit bad 12 --set submit.mpi.program=no-mpirun
refused 'submit.mpi.family = "mpich"|expected "openmpi", or "hydra"' submit bad 12 --set submit.mpi.family=mpich
refused "submit.mpi.hostfile nowhere: cannot be read" submit bad 12 --set submit.mpi.hostfile=nowhere
# It is needed only where the job is submitted.
exits 0 check tiny check bad 12 --set submit.mpi.hostfile=nowhere
exits 0 status $orrery status --engine mpi --set submit.mpi.hostfile=nowhere "$(hostname):999999999:1"
grep -q "mpirun of this job has ended" status.txt || { cat status.txt; fail "status without the hostfile"; }
echo "1 passed, 0 failed"
