#!/usr/bin/env bash
# A Slurm cluster on this host, for tests and by hand: a controller and nodes n1, n2, ... in network namespaces of their
# own, which a bridge joins (10.88.0.0/24), each with its name and its own /tmp and /dev/shm. FOLDER is what they share.
#
#     slurm_cluster.sh start FOLDER [NODES]      4 nodes; partitions low (the default; may be preempted) and high
#     slurm_cluster.sh hosts FOLDER [NODES]      the same without Slurm: hosts for mpirun and ssh
#     slurm_cluster.sh on FOLDER HOST COMMAND    runs a command on ctl or on a node: on FOLDER ctl sbatch job.sh
#     slurm_cluster.sh slurmd FOLDER NODE        starts the node's slurmd again after it was killed
#     slurm_cluster.sh link FOLDER NODE up|down  its network
#     slurm_cluster.sh stop FOLDER
#
# Needs root, and slurmctld, slurmd and slurm-client (scripts/setup --engines). FOLDER/cluster has configuration, state
# and logs. CONFIGURATION: more lines for slurm.conf. RATE: of each node's link, 20mbit.
set -eu
self=$(readlink -f "$0")
name=$(basename "$0")
usage() { sed -n '2,14s/^# \{0,1\}//p' "$self"; exit 2; }
[ $# -ge 2 ] || usage
verb=$1
mkdir -p "$2"
shared=$(cd "$2" && pwd -P)
shift 2
cluster=$shared/cluster

# Names of namespaces have the cluster's number, so that several clusters run side by side.
space() { echo "orrery-$(cat "$cluster/number")-$1"; }
nodes() { seq -f 'n%.0f' "$(cat "$cluster/nodes")"; }

# inside HOST COMMAND...: in the host's namespaces. `ip netns exec` would hide /sys/fs/cgroup, without which slurmd ends.
inside() {
    local host=$1
    shift
    exec nsenter --net=/run/netns/"$(space "$host")" unshare --mount --uts --propagation private \
        bash "$self" enter "$shared" "$host" "$@"
}
# Private /tmp and /dev/shm, the names of all hosts, and FOLDER where it was, also if that is below /tmp.
enter() {
    local host=$1 own=$cluster/tmp-$1
    shift
    hostname "$host"
    mount -t tmpfs -o size=2g tmpfs /dev/shm
    mount --bind "$cluster/hosts" /etc/hosts
    mkdir -p "$own"
    if [[ $shared == /tmp/* ]]; then
        mkdir -p "$own/${shared#/tmp/}"
        mount --bind "$shared" "$own/${shared#/tmp/}"
    fi
    mount --rbind "$own" /tmp
    cd "$shared"
    export SLURM_CONF=$cluster/slurm.conf
    exec "$@"
}

# daemon HOST NAME COMMAND...: in the background; its process is in cluster/NAME.pid.
daemon() {
    local host=$1 file=$cluster/$2.pid
    shift 2
    (inside "$host" bash -c 'echo $$ > "$0" && exec "$@"' "$file" "$@" < /dev/null >> "${file%.pid}.out" 2>&1) &
    disown
}
wait_for() {
    local i
    for i in $(seq 600); do
        "$@" > /dev/null 2>&1 && return 0
        sleep 0.1
    done
    return 1
}
idle() { [ "$(on ctl sinfo -h -N -p low -t idle -o %N | wc -l)" -ge "$(cat "$cluster/nodes")" ]; }
on() { (inside "$@"); }

configure() {
    local count=$1
    cat > "$cluster/slurm.conf" << CONF
ClusterName=orrery$(cat "$cluster/number")
SlurmctldHost=ctl(10.88.0.254)
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool-%n
SlurmctldPidFile=$cluster/slurmctld.own.pid
SlurmdPidFile=$cluster/%n.own.pid
SlurmctldLogFile=$cluster/slurmctld.log
SlurmdLogFile=$cluster/%n.log
SlurmdParameters=config_overrides
SlurmdTimeout=10
ReturnToService=2
JobRequeue=1
KillWait=10
MpiDefault=none
LaunchParameters=use_interactive_step
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n[1-$count] CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 GraceTime=20 MaxTime=UNLIMITED
PartitionName=high Nodes=ALL PriorityTier=9 PreemptMode=OFF MaxTime=UNLIMITED
${CONFIGURATION:-}
CONF
}

need() {
    local program
    for program in "$@"; do
        command -v "$program" > /dev/null || { echo "$name: $program is not installed: scripts/setup --engines"; exit 77; }
    done
}

hosts() {
    local count=${1:-4} host i
    need ip nsenter tc
    mkdir -p "$cluster/state"
    echo "$count" > "$cluster/nodes"
    echo $$ > "$cluster/number"
    { echo "127.0.0.1 localhost"; echo "10.88.0.254 ctl"
      for i in $(seq "$count"); do echo "10.88.0.$i n$i"; done; } > "$cluster/hosts"
    ip netns add "$(space ctl)" || { echo "$name: no network namespace can be made here"; exit 77; }
    ip -n "$(space ctl)" link set lo up
    ip -n "$(space ctl)" link add bridge type bridge
    ip -n "$(space ctl)" addr add 10.88.0.254/24 dev bridge
    ip -n "$(space ctl)" link set bridge up
    for host in $(nodes); do
        ip netns add "$(space "$host")"
        ip -n "$(space "$host")" link set lo up
        ip link add eth0 netns "$(space "$host")" type veth peer name "$host" netns "$(space ctl)"
        ip -n "$(space ctl)" link set "$host" master bridge up
        ip -n "$(space "$host")" addr add "10.88.0.${host#n}/24" dev eth0
        ip -n "$(space "$host")" link set eth0 up
        [ -z "${RATE:-}" ] || tc -n "$(space "$host")" qdisc add dev eth0 root tbf rate "$RATE" burst 16kb latency 2s
        mkdir -p "$cluster/spool-$host"
    done
}

start() {
    local host
    need slurmctld slurmd srun
    hosts "$@"
    configure "$(cat "$cluster/nodes")"
    daemon ctl slurmctld slurmctld -D -f "$cluster/slurm.conf"
    for host in $(nodes); do daemon "$host" "slurmd-$host" slurmd -D -N "$host" -f "$cluster/slurm.conf"; done
    wait_for idle || { tail -n 5 "$cluster"/*.out "$cluster"/*.log; echo "$name: the nodes did not come"; exit 1; }
}

# Ends every process of the cluster's network namespaces.
stop() {
    local host
    for host in $(nodes) ctl; do
        ip netns pids "$(space "$host")" 2> /dev/null | xargs -r kill -9 2> /dev/null || true
        ip netns del "$(space "$host")" 2> /dev/null || true
    done
}

case $verb in
start) start "$@" ;;
hosts) hosts "$@" ;;
on) inside "$@" ;;
enter) enter "$@" ;;
slurmd) daemon "$1" "slurmd-$1" slurmd -D -N "$1" -f "$cluster/slurm.conf" ;;
link) ip -n "$(space ctl)" link set "$1" "$2" ;;
stop) stop ;;
*) usage ;;
esac
