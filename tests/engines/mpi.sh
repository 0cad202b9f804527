#!/usr/bin/env bash
# mpirun of Open MPI and of MPICH over two hosts (network namespaces), without MASTER_ADDR and ORRERY_TOKEN by hand: the
# tasks meet in the run's folder, and leave nothing there. Ranks, and agents that start two ranks each.
source "$(dirname "$0")/../jobs/lib.sh"
cluster=$source_root/tests/engines/slurm_cluster.sh
bash "$cluster" hosts "$work" 3 || { code=$?; [ $code -eq 77 ] && echo "skipped: mpirun: no namespaces"; exit $code; }
trap 'bash "$cluster" stop "$work"; jobs -p | xargs -r kill -9 2>/dev/null; rm -rf "$work"' EXIT
unset MASTER_ADDR ORRERY_TOKEN ORRERY_TOKEN_FILE

# In place of ssh: agent [-x] HOST COMMAND.
cat > agent << SH
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
exec bash $cluster on $work \$host sh -c "\$*"
SH
chmod +x agent
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# started KIND HOSTS COMMAND...: one task on each of n1, n2, ... by that kind's mpirun, which is started on n1.
started() {
    local kind=$1 count=$2
    shift 2
    if [ "$kind" = openmpi ]; then
        set -- mpirun.openmpi --mca plm_rsh_agent "$work/agent" --mca btl_tcp_if_include eth0 --oversubscribe \
            --host "$(seq -s , -f 'n%.0f:1' "$count")" -np "$count" --map-by node "$@"
    else
        set -- mpirun.mpich -launcher ssh -launcher-exec "$work/agent" -hosts "$(seq -s , -f 'n%.0f' "$count")" \
            -np "$count" -ppn 1 "$@"
    fi
    timeout 120 bash "$cluster" on "$work" n1 "$@"
}
# tiny FOLDER RANKS [more arguments]
tiny() {
    local folder=$1 ranks=$2
    shift 2
    orrery="echo $orrery" run_tiny "$work/$folder" 20 --set mesh.dp="$ranks" --set data.path="$work/text.txt" \
        --set run.transport=gloo --set run.threads_per_rank=1 "$@"
}
# Without mpirun: two ranks of one host; and four on two hosts, over which gloo adds in another order.
$(tiny plain-2 2) > plain.log 2>&1 || { tail plain.log; fail "two ranks of one host"; }
for node in 0 1; do
    ORRERY_TOKEN=a-secret-of-both-hosts timeout 120 bash "$cluster" on "$work" n$((node + 1)) \
        $(tiny plain-4 4 --nodes 2 --node-rank $node --rendezvous 10.88.0.1:29500) > plain-$node.log 2>&1 &
    nodes[$node]=$!
done
for node in 0 1; do wait ${nodes[$node]} || { tail plain-?.log; fail "four ranks of two hosts"; }; done
for ranks in 2 4; do losses plain-$ranks > plain-$ranks.txt; done

# ends_like KIND NAME RANKS: the run has the losses of one without mpirun, and its folder no file of the meeting.
ends_like() {
    losses "$1-$2" | cmp - "plain-$3.txt" || { tail -20 "$1-$2.log"; fail "$1, $2: other losses"; }
    ! ls -A "$1-$2" | grep meeting || fail "$1, $2: a file of the meeting is left"
    row "$1, $2: the losses of $3 ranks without mpirun"
}
row() { echo "$1" | tee -a rows.txt; }
found=0
for kind in openmpi mpich; do
    command -v mpirun.$kind > /dev/null || { echo "skipped: mpirun of $kind"; continue; }
    found=$((found + 1))
    # shellcheck disable=SC2046
    started $kind 2 $(tiny $kind-ranks 2) > $kind-ranks.log 2>&1 || { tail -20 $kind-ranks.log; fail "$kind: ranks"; }
    ends_like $kind ranks 2
    started $kind 2 $(tiny $kind-agents 4 --restarts 2) > $kind-agents.log 2>&1 ||
        { tail -20 $kind-agents.log; fail "$kind: agents"; }
    ends_like $kind agents 4
    started $kind 3 $(tiny $kind-spare 4 --restarts 2 --nodes 2) > $kind-spare.log 2>&1 ||
        { tail -20 $kind-spare.log; fail "$kind: agents and a spare"; }
    ends_like $kind spare 4
    # A folder that the hosts do not share: /tmp is each host's own.
    started $kind 2 $(tiny $kind-apart 2 --set run.folder=/tmp/run --set run.join_timeout_s=3) \
        > $kind-apart.log 2>&1 && fail "$kind: a folder of each host"
    grep -q "did not ask for the address of task 0 within 3 s" $kind-apart.log &&
        grep -q "did not write its address within 3 s" $kind-apart.log &&
        grep -q "or set MASTER_ADDR and ORRERY_TOKEN for all of them, as mpirun" $kind-apart.log ||
        { cat $kind-apart.log; fail "$kind: no word on the folder"; }
    row "$kind, a folder that is not shared: each host says so"
    # One task starts both ranks.
    started $kind 1 $(tiny $kind-alone 2) > $kind-alone.log 2>&1 ||
        { tail -20 $kind-alone.log; fail "$kind: one task"; }
    grep -q "started one task, and mesh dp=2 has 2 ranks: they start on this host" $kind-alone.log ||
        fail "$kind: no note"
    ends_like $kind alone 2
done
[ $found -gt 0 ] || exit 77
[ -z "${ORRERY_LONG:-}" ] || cp rows.txt "$ORRERY_LONG"
echo "1 passed, 0 failed"
