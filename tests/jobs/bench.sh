#!/usr/bin/env bash
# `orrery bench`: every collective that it offers, in nccl-tests' columns, with right results, at odd counts too; under
# each launcher and over hosts; and nothing that it is told is ignored.
source "$(dirname "$0")/lib.sh"
collectives=$("$orrery" bench nothing 2>&1 | grep -o '{[a-z_,]*}' | head -1 | tr -d '{}' | tr ',' ' ')
[ "$(wc -w <<< "$collectives")" -ge 6 ] || fail "bench names its collectives otherwise: $("$orrery" bench nothing 2>&1)"

# rows COLLECTIVE REDUCES BUS: three sizes of f32; the bus bandwidth is BUS of the algorithm's on two ranks.
rows() {
    awk -v name="$1" -v redop="$2" -v bus="$3" '
    function near(a, b) { return a - b <= 0.011 && b - a <= 0.011 }
    /^#/ { next }
    {
        ++rows
        if (NF != 13) print "columns: " $0
        if ($1 != 1024 * 4 ^ (rows - 1) || $2 * 4 != $1 || $3 != "f32" || $4 != redop) print "left columns: " $0
        if ($5 != (name == "broadcast" ? 0 : -1)) print "root: " $0
        for (i = 6; i <= 10; i += 4) {
            if ($i <= 0) print "time: " $0
            if (!near($(i + 2), $(i + 1) * bus)) print "busbw is not " bus " of algbw: " $0
            if ($(i + 3) != "0") print "wrong: " $0
        }
    }
    END { if (rows != 3) print rows + 0 " rows instead of 3" }' "$1.txt"
}
for collective in $collectives; do
    "$orrery" bench "$collective" --ranks 2 -b 1K -e 16K -f 4 -n 2 -w 1 > "$collective.txt" 2> err.txt ||
        { cat "$collective.txt" err.txt; fail "bench $collective"; }
    case $collective in
    all_reduce) reduces=sum bus=1 ;;
    reduce_scatter) reduces=sum bus=0.5 ;;
    all_gather | all_to_all) reduces=none bus=0.5 ;;
    *) reduces=none bus=1 ;;
    esac
    grep -q "^# $collective over shm, 2 ranks" "$collective.txt" ||
        { cat "$collective.txt"; fail "head of $collective"; }
    names=$(awk '$1 == "#" && $2 == "size" { $1 = $1; print }' "$collective.txt")
    [ "$names" = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong" ] ||
        fail "columns of $collective: $names"
    wrong=$(rows "$collective" $reduces $bus)
    [ -z "$wrong" ] || { cat "$collective.txt"; fail "$collective: $wrong"; }
    grep -q "^# Out of bounds values : 0 OK" "$collective.txt" || { cat "$collective.txt"; fail "end of $collective"; }
    mean=$(awk '!/^#/ { sum += $8 + $12; n += 2 } END { printf "%.6f", sum / n }' "$collective.txt")
    awk -v mean="$mean" '/^# Avg bus bandwidth    : / { d = $6 - mean; found = d <= 0.006 && d >= -0.006 }
        END { exit !found }' "$collective.txt" ||
        { cat "$collective.txt"; fail "$collective: the average bus bandwidth is not about $mean"; }
    grep -v '^#' "$collective.txt" | tail -1
done

# sizes WANTED ARGUMENTS...: the sizes of the lines, with no wrong result and no line of another type.
sizes() {
    local wanted=$1 found
    shift
    "$orrery" bench "$@" -n 1 -w 0 > sizes.txt 2> err.txt || { cat sizes.txt err.txt; fail "bench $*"; }
    found=$(awk '!/^#/ { printf "%s ", $1; if ($9 != 0 || $13 != 0) printf "wrong " }' sizes.txt)
    [ "$found" = "$wanted " ] || { cat sizes.txt; fail "bench $*: sizes $found, expected $wanted"; }
}
transports="shm gloo"
"$orrery" plugins | grep -q "transport/ucx .*[.]so" && transports+=" ucx"
for transport in $transports; do
    for collective in all_reduce broadcast send_receive; do
        sizes "0 4 20 100 500" "$collective" --transport "$transport" --ranks 2 -b 0 -e 600 -f 5
        sizes "1 3 9 27 81 243" "$collective" --transport "$transport" --ranks 2 -b 1 -e 256 -f 3 --dtype i8
    done
    for collective in all_gather reduce_scatter all_to_all; do
        sizes "0 12 60 300" "$collective" --transport "$transport" --ranks 3 -b 0 -e 400 -f 5
    done
done
"$orrery" bench all_reduce -b 1 -e 1 -n 1 --dtype i8 > i8.txt || fail "i8"
grep -q "^ .* i8 .* sum " i8.txt || { cat i8.txt; fail "i8 has another name"; }
for average in 0 1 2 3; do
    "$orrery" bench all_reduce -b 4 -e 4 -n 1 -a $average >> average.txt || fail "-a $average"
done
[ "$(grep -o "times are.*" average.txt | uniq | wc -l)" = 4 ] || { cat average.txt; fail "-a names other times"; }
echo "odd and empty sizes over $transports"

# What another has put in the environment is not the job's.
ORRERY_TOKEN=a-secret-of-this-test ORRERY_JOB=other ORRERY_GENERATION=7 \
    timeout 60 "$orrery" bench all_reduce -b 1K -e 1K -n 1 > token.txt 2>&1 ||
    { cat token.txt; fail "with ORRERY_TOKEN in the environment"; }

# as_task, as_mpi RANK RANKS PORT COMMAND...: in the environment that srun and mpirun give.
as_task() {
    local rank=$1 ranks=$2 port=$3
    shift 3
    env SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID="$rank" SLURM_LOCALID="$rank" SLURM_STEP_NUM_TASKS="$ranks" \
        SLURM_STEP_TASKS_PER_NODE="$ranks" SLURM_NODEID=0 MASTER_PORT="$port" "$@"
}
as_mpi() {
    local rank=$1 ranks=$2 port=$3
    shift 3
    env OMPI_COMM_WORLD_RANK="$rank" OMPI_COMM_WORLD_SIZE="$ranks" OMPI_COMM_WORLD_LOCAL_RANK="$rank" \
        OMPI_COMM_WORLD_LOCAL_SIZE="$ranks" MASTER_PORT="$port" "$@"
}
for launcher in as_rank as_task as_mpi; do
    port=$(free_port)
    for rank in 0 1 2; do
        $launcher $rank 3 "$port" timeout 60 "$orrery" bench all_reduce -b 4 -e 12 -f 3 -n 1 \
            > $launcher.$rank.txt 2>&1 &
        pids[rank]=$!
    done
    for rank in 0 1 2; do
        wait "${pids[rank]}" || { cat $launcher.*.txt; fail "$launcher: rank $rank ended with $?"; }
    done
    grep -q "^# all_reduce over shm, 3 ranks" $launcher.0.txt || { cat $launcher.0.txt; fail "$launcher: head"; }
    [ "$(grep -vc '^#' $launcher.0.txt)" = 2 ] || { cat $launcher.0.txt; fail "$launcher: not two lines"; }
    [ ! -s $launcher.1.txt ] && [ ! -s $launcher.2.txt ] || { cat $launcher.*.txt; fail "$launcher: others print"; }
    for flags in "--ranks 2|--ranks 2, but|started 3 ranks" "--nodes 2|--nodes: |leave --nodes out"; do
        IFS='|' read -r flag first second <<< "$flags"
        $launcher 1 3 "$port" timeout 60 "$orrery" bench all_reduce $flag > flags.txt 2>&1
        [ $? = 2 ] && grep -q -e "$first" flags.txt && grep -q -e "$second" flags.txt ||
            { cat flags.txt; fail "$launcher with $flag"; }
    done
done
echo "under torchrun, srun and mpirun: their ranks, one table"

# Two hosts, by the flags of run: here both are this one, under an address that is no loopback.
own=$(ip -o -4 addr show scope global 2> /dev/null | awk '{ sub("/.*", "", $4); print $2, $4; exit }')
read -r interface address <<< "$own"
if [ -n "${address:-}" ]; then
    port=$(free_port)
    host() {
        ORRERY_TOKEN=a-secret-of-this-test timeout 60 "$orrery" bench all_gather -b 16 -e 16 -n 1 --transport gloo \
            --set transport.gloo.interface="$interface" --ranks 4 --nodes 2 --node-rank "$1" \
            --rendezvous "$address:$port"
    }
    host 1 > second.txt 2>&1 &
    second=$!
    host 0 > first.txt 2>&1 || { cat first.txt second.txt; fail "node 0"; }
    wait $second || { cat first.txt second.txt; fail "node 1"; }
    grep -q "^# all_gather over gloo, 4 ranks" first.txt || { cat first.txt; fail "head over hosts"; }
    grep -q "Out of bounds values : 0 OK" first.txt && [ ! -s second.txt ] ||
        { cat first.txt second.txt; fail "table over hosts"; }
    echo "over two hosts: one table"
else
    echo "skipped: this host has no address but the loopback's, so no hosts can meet"
fi

# refused WORDS ARGUMENTS...: exit code 2 and every word (separated by |), before any rank starts or a line is printed.
refused() {
    local words=$1 out word code
    shift
    out=$("$orrery" bench all_reduce -b 1K -e 1K "$@" 2>&1)
    code=$?
    [ $code -eq 2 ] || fail "bench $*: exit code $code, expected 2: $out"
    word=$(missing_word "$words" "$out")
    [ -z "$word" ] || fail "bench $*: no \"$word\" in: $out"
    [[ $out != *algbw* ]] || fail "bench $*: it printed a table: $out"
}
typo='--set transport.gloo.intreface=x|unknown key "intreface" in [transport.gloo]|did you mean "interface"'
refused "$typo" --set transport.gloo.intreface=x
refused "$typo" --set transport.gloo.intreface=x --transport gloo
refused 'unknown key "ringbytes" in [transport.shm]' --set transport.shm.ringbytes=1
refused 'did you mean "reference"' --set device.cpu.referense=true
refused 'no transport "shmm"|did you mean "shm"' --transport shmm
refused '--set train.steps=4|does not read this|transport.NAME.KEY' --set train.steps=4
refused '--dtype bf61: no such type|f32|did you mean "bf16"' --dtype bf61
printf '[train]\nsteps = 4\n[transport.shm]\nringbytes = 1\n' > run.toml
refused 'run.toml:4:13: unknown key "ringbytes"' --config run.toml
sed -i '/ringbytes/d' run.toml
"$orrery" bench all_reduce -b 1K -e 1K -n 1 --config run.toml > good.txt 2>&1 || { cat good.txt; fail "a run's file"; }
refused 'needs --rendezvous HOST:PORT' --nodes 2
refused 'several nodes need a shared secret|ORRERY_TOKEN' --nodes 2 --rendezvous 10.0.0.1:29500
refused '3 ranks are not divisible by --nodes 2' --ranks 3 --nodes 2 --rendezvous 10.0.0.1:29500
ORRERY_TOKEN=a-secret-of-this-test refused 'shm connects ranks on one host only|--transport gloo' --ranks 2 --nodes 2 \
    --rendezvous 10.0.0.1:29500
refused 'not supported for i8, which is sent as unsigned bytes|--op sum' --dtype i8 --op max
echo "1 passed, 0 failed"
