#!/usr/bin/env bash
# Plays rows of drills.txt with processes: drill.sh [NAME...], without a name all of them, each ORRERY_TIMES times. Each
# must end as in the world of tests/unit (drills.cpp): the end of each generation, who is named, the exit code, what is
# said. Checked here alone are losses bit for bit, checkpoints, processes and shared memory that are left, and times.
source "$(dirname "$0")/lib.sh"
rows=$source_root/tests/jobs/drills.txt
shown() { tail -n 40 "$name".*.log >&2; }
bad() { shown; fail "$name: $*"; }

# of KEY OTHERWISE: from the row's column `job`.
of() { [[ " $job " =~ " $1="([0-9]+)" " ]] && echo "${BASH_REMATCH[1]}" || echo "$2"; }

# Nodes are network namespaces; node 0's has the bridge. At most three nodes and a spare.
spaces=("orrery-d0-$$" "orrery-d1-$$" "orrery-d2-$$" "orrery-d3-$$") bridge=orrery-br-$$ network=
clean() {
    jobs -p | xargs -r kill -9 2> /dev/null
    for space in "${spaces[@]}"; do
        ip netns pids "$space" 2> /dev/null | xargs -r kill -9
        ip netns del "$space" 2> /dev/null
    done
    { fsfreeze -u disk; umount disk; } 2> /dev/null
    rm -rf "$work"
}
trap clean EXIT
make_network() {
    local n
    for n in 0 1 2 3; do ip netns add "${spaces[$n]}" 2> netns.log || return 1; done
    ip -n "${spaces[0]}" link add $bridge type bridge 2> netns.log || return 1
    ip -n "${spaces[0]}" addr add 10.77.1.1/24 dev $bridge
    ip -n "${spaces[0]}" link set $bridge up
    ip -n "${spaces[0]}" link set lo up
    for n in 1 2 3; do
        ip link add veth0 netns "${spaces[$n]}" type veth peer name veth$n netns "${spaces[0]}" || fail "veth $n"
        ip -n "${spaces[0]}" link set veth$n master $bridge up
        ip -n "${spaces[$n]}" addr add 10.77.1.$((n + 1))/24 dev veth0
        ip -n "${spaces[$n]}" link set veth0 up
        ip -n "${spaces[$n]}" link set lo up
        # A step's gradients take 5 ms then, on any machine: nothing that is to happen to a run comes after its end.
        ip netns exec "${spaces[$n]}" tc qdisc add dev veth0 root tbf rate 400mbit burst 64kb latency 1s 2> tbf.log ||
            echo "links are not shaped: $(head -1 tbf.log)"
    done
}

# The run of a row: its steps, settings (`pace`: also of the uninterrupted run), flags and script.
prepare() {
    local word
    steps=1000 pace=() settings=() flags=() script=$source_root/scripts/gpt.lua
    [ "$restarts" -gt 0 ] || steps=400
    [ "$after" != - ] || steps=100000
    [ "$ranks" -ne 1 ] || { steps=$((steps * 4)) && pace+=(--set run.threads_per_rank=1); }
    [ "$ranks" -eq 2 ] || pace+=(--set mesh.dp="$ranks")
    [ "$ranks" -ne 3 ] || pace+=(--set train.sequences_per_step=6)
    if [ "$nodes" -gt 1 ]; then
        [ "$after" = - ] || steps=400
        pace+=(--set run.threads_per_rank=1 --set train.evaluate_every=0 --set checkpoint.every_steps=50
            --set run.transport=gloo)
        [ "$spares" -eq 0 ] || flags+=(--spares "$spares")
        [ -z "$(of wait "")" ] || flags+=(--wait-node "$(of wait "")")
    fi
    [ "$restarts" -eq 0 ] || flags+=(--restarts "$restarts")
    [[ $job != *ends=1* ]] || flags+=(--drain-ends-job)
    if [[ $events = *notice* ]]; then
        mkdir -p own && echo 'mount -t tmpfs none own && exec "$@"' > own.sh  # a folder that each node has of its own
        settings+=(--set run.notice_file=own/notice)
    fi
    [ "$(of silence 10)" -eq 10 ] || settings+=(--set run.silence_s="$(of silence 10)")
    [ -z "$(of disk "")" ] || settings+=(--set run.disk_timeout_s="$(of disk "")")
    tiny_bound="--set run.timeout_s=$(of bound 20)"
    [ "$(of bound 20)" -ne 0 ] || tiny_bound=
    for word in $more; do
        case $word in
        ci) ;;
        calm) settings+=(--set checkpoint.every_steps=0 --set train.evaluate_every=0) ;;
        *) settings+=(--set "$word") ;;
        esac
    done
}

# in_rank WHEN WHAT WHOM NUMBER: the row's script, in which a rank does that to itself before its training, or after it.
in_rank() {
    local when=$1 what=$2 whom=$3 number=$4 condition act
    case $whom in
    turns) condition='generation % 2 == rank % 2' ;;
    *) condition="rank == \"$number\"" ;;
    esac
    [ "$when" != first ] || condition="$condition and once()"
    case $what in
    kill) act='os.execute("kill -9 $PPID")' ;;
    leave) act='os.exit(0)' ;;
    mistake) act='error("a mistake of this script")' ;;
    stop) act='os.execute("sleep 3; kill -STOP $PPID")' ;;
    starve)
        group=/sys/fs/cgroup/memory/orrery-$$
        { mkdir -p $group && echo 100M > $group/memory.limit_in_bytes; } 2> /dev/null ||
            { echo "$name: skipped: no cgroup of memory to make here"; exit 77; }
        act="os.execute(\"echo \$PPID > $group/cgroup.procs\") eaten = string.rep(\"x\", 300 << 20)"
        ;;
    esac
    cat > "$name.hook" <<LUA
local rank, generation = os.getenv("ORRERY_RANK"), os.getenv("ORRERY_GENERATION")
local function once() return not io.open("$name.once") and io.open("$name.once", "w"):close() end
if rank and $condition then $act end
LUA
    mkdir -p "$name.scripts"
    if [ "$when" = end ]; then
        steps=5
        cat "$script" "$name.hook" > "$name.scripts/gpt.lua"
    else
        sed "/^run:train(data)/{
            e cat $name.hook
        }" "$script" > "$name.scripts/gpt.lua"
    fi
    ! cmp -s "$script" "$name.scripts/gpt.lua" || fail "the script has no training to go before"
    script=$work/$name.scripts/gpt.lua
    settings+=(--set 'lua.allow=["io","os"]' --set lua.library="$source_root/scripts")
}

# begin N: the launcher of node N, in the background; node[N] is its process.
begin() {
    local n=$1 own=() place=() program=$orrery
    if [ "$nodes" -gt 1 ]; then
        place=(--nodes "$nodes" --node-rank "$n" --rendezvous 10.77.1.1:29871)
        [[ $n != 1 || $events != *break* ]] || program="env LD_LIBRARY_PATH=$work/broken $work/broken/orrery"
        [[ $n != 1 || $events != *mistake* ]] || own=(--set checkpoint.async=false)
        [[ $events != *notice* ]] || program="sh own.sh $program"
        program="ip netns exec ${spaces[$n]} $program"
    fi
    orrery=$program tiny_exec=exec tiny_script=$script run_tiny "$folder" "$steps" "${pace[@]}" "${settings[@]}" \
        "${flags[@]}" "${place[@]}" "${own[@]}" >> "$name.$n.log" 2>&1 &
    node[$n]=$!
}
begin_all() {
    local n
    begin 0
    for ((n = nodes; n < nodes + spares; ++n)); do begin "$n"; done
    for ((n = nodes; n < nodes + spares; ++n)); do
        wait_for grep -qs "\"node\":$n,\"is\":\"here\"" "$record" || bad "the spare did not come"
    done
    for ((n = 1; n < nodes; ++n)); do begin "$n"; done
}
# The process of rank N.
rank_of() {
    if [ "$nodes" -gt 1 ]; then ranks_of "${node[$1]}"; else ranks_of "${node[0]}" | sed -n "$(($1 + 1))p"; fi
}
all_ranks() { [ "$(ranks_of "${node[0]}" | wc -l)" -eq $((ranks / nodes)) ]; }
trains_again() { [ "$(grep -sc '"event":"training"' "$record")" -ge 2 ]; }
saves() { ls "$folder/checkpoints" 2> /dev/null | grep -qv generation; }
noticed() { grep -qE "node [0-9]+ is lost|have been stopped|has waited for a disk" "$name".0.log; }
# Processes of this test that hold or map a segment of the transport shm, which has no name on disk.
segments() {
    local process
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/cwd" 2> /dev/null)" = "$work" ] || continue
        { ls -l "$process/fd"; cat "$process/maps"; } 2> /dev/null | grep -q 'memfd:orrery-shm' || continue
        echo "${process#/proc/}"
    done
}
ms() { echo $(($(date +%s%N) / 1000000)); }

# The nodes that were asked to stop have left the job, with exit code 75.
all_left() {
    local n code
    for n in $leaving; do
        wait_for ended "${node[$n]}" || bad "node $n does not leave"
        wait "${node[$n]}"
        code=$?
        [ $code -eq 75 ] || bad "exit code $code of node $n, which leaves: expected 75"
        unset "node[$n]"
    done
    leaving=
}
ended() { [ ! -e "/proc/$1" ] || [ "$(cut -d' ' -f3 "/proc/$1/stat" 2> /dev/null)" = Z ]; }

# Ranks are started again, and those of before are gone.
replaced() {
    local pid
    newer() { [ -n "$(comm -13 <(sort <<< "$before") <(ranks_of "${node[0]}" | sort))" ]; }
    wait_for newer || bad "no restart"
    for pid in $before; do [ ! -e "/proc/$pid" ] || bad "process $pid of the generation before is left"; done
}
await() {
    local patience=3000
    case $1 in
    first | each | end | then) ;;
    start) wait_for all_ranks ;;
    saving) wait_for saves ;;
    again) wait_for trains_again ;;
    noticed) wait_for noticed ;;
    left) all_left ;;
    *) wait_for steps_done "$folder" "$1" ;;
    esac || bad "timed out waiting for: $1"
}

# happens WHEN WHAT WHOM [NUMBER]
happens() {
    local what=$2 whom=$3 number=${4:-} pids=
    case $1 in first | each | end) return ;; esac
    [ "$what" != mistake ] || return 0  # which the other node's settings are
    await "$1"
    case $whom in
    rank) pids=$(rank_of "$number") ;;
    ranks) pids=$(ranks_of "${node[0]}") ;;
    launcher) pids=${node[0]} ;;
    node) pids=${node[$number]:-} ;;
    esac
    case $what in
    kill)
        [ "$whom" != rank ] || victim=$pids
        if [ "$whom" = node ]; then
            pids+=" $(ranks_of "$pids")"
        elif [[ $1 =~ ^[0-9]+$ && $nodes -eq 1 && $ranks -gt 1 ]]; then
            [ "$(segments | wc -l)" -ge 2 ] || [[ $more = *gloo* ]] || bad "no rank was seen to hold a segment"
        fi
        before=$(ranks_of "${node[0]}") struck=$(ms)
        kill -9 $pids || bad "there was no process to kill"
        [ "$whom" != node ] || { wait "${node[$number]}" 2> /dev/null; unset "node[$number]"; }
        [ "$whom" != node ] || leaving=${leaving/$number/}
        [ "$nodes" -gt 1 ] || [ "$row_ends" = "${row_ends%done}" ] || replaced
        ;;
    stop)
        struck=$(ms)
        kill -STOP $pids || bad "there was no process to stop"
        ;;
    TERM | INT | USR1)
        kill -"$what" $pids || bad "there was no process to signal"
        [[ $whom != node || $number = 0 || " $job" != *" spares="* && " $job" != *" wait="* || $job = *ends=1* ]] ||
            leaving+=" $number"
        ;;
    notice)
        nsenter --mount --target "$pids" touch "$work/own/notice" || bad "no notice"
        leaving+=" $number"
        ;;
    begin)
        [ "$number" -ne 0 ] || sleep 1
        begin "$number"
        ;;
    break) rm broken/plugins/liborrery_device_cpu.so ;;
    cut) ip -n "${spaces[0]}" link set veth"$number" down ;;
    heal) ip -n "${spaces[0]}" link set veth"$number" up ;;
    freeze) fsfreeze -f disk 2> frozen.err || bad "$(cat frozen.err)" ;;
    thaw) sleep 1 && fsfreeze -u disk ;;
    take) touch "$folder/checkpoints/generation-$(printf %08d "$number")" ;;
    move) mv "$folder" "$folder.away" && record=$folder.away/events.jsonl ;;
    esac
}

# ends CODE: of all launchers that were not killed, with nothing left of them.
ends() {
    local n code
    all_left
    for n in "${!node[@]}"; do
        patience=6000 wait_for ended "${node[$n]}" || bad "the launcher of node $n waits for ever"
        wait "${node[$n]}"
        code=$?
        [ $code -eq "$1" ] || bad "exit code $code of node $n, expected $1"
    done
    took=$(($(ms) - struck))
    [ -z "$(ip netns pids "${spaces[0]}" 2> /dev/null; pgrep -f "run.folder=$folder ")" ] || bad "processes are left"
    [ -z "$(segments)" ] || bad "shared memory is left: $(segments)"
}
same() {
    local key="$ranks.$steps.$nodes"
    [ -e "whole.$key.txt" ] || {
        run_tiny "whole.$key" "$steps" "${pace[@]}" > "whole.$key.log" 2>&1 ||
            { cat "whole.$key.log"; fail "the uninterrupted run"; }
        losses "whole.$key" > "whole.$key.txt"
        [ "$(wc -l < "whole.$key.txt")" -eq "$steps" ] || fail "the uninterrupted run has not $steps step lines"
    }
    losses "$folder" > "$name.txt"
    cmp "whole.$key.txt" "$name.txt" || { diff "whole.$key.txt" "$name.txt" | head -6; bad "another trajectory"; }
}

# With restarts events.jsonl has what the row says of each generation; without, the processes say it.
recorded() {
    sed '/the job starts again/q' "$name.0.log" | sed -n 's/.*checkpoint of step \([0-9]*\) committed.*/\1/p' \
        > "$name.committed"
    python3 - "$record" "$row_ends" "$code" "$name.committed" "$events" <<'PY' || bad "events.jsonl"
import json, os, re, sys
record, row, code, committed, drill = sys.argv[1:]
events = [json.loads(line) for line in open(record)]
row = row.split()
last = events[-1]
assert last["event"] == "end" and last["exit_code"] == int(code), last
started = [e["generation"] for e in events if e["event"] == "start"]
assert started == sorted(set(started)) and started[0] == 1, started
seen = {generation: set() for generation in started}
for e in events:
    of = seen.get(e["generation"], set())
    if e["event"] == "ended":
        cause, who = e["cause"].replace(" ", "-"), e.get("who", "").split(" ")
        of |= {cause, cause + ":" + who[-1]}
    if e["event"] == "node" and e["is"] == "lost":
        of |= {"node", "node:%d" % e["node"]}
    if e["event"] == "drained":
        of |= {"drained", "drained:%d" % e["node"]}
ends = [end for end in row if end not in ("-", "done")]
for generation, end in zip(started, ends):
    assert end in seen[generation], (generation, end, seen)
restarts = last["restarts"]
assert restarts in (len(row) - 1, len(row)) or row == ["-"] or len(started) > len(row), (restarts, row)
# The second generation resumes from what the first has committed.
training = [e for e in events if e["event"] == "training"]
assert not training or training[0]["step"] == 0, training
steps = sorted(int(step) for step in open(committed))
for e in training[1:2]:
    before = [x["step"] for x in events if x["event"] == "ended" and x["generation"] < e["generation"]]
    newest = max([step for step in steps if before and step <= max(before)] or [0])
    if row[0].startswith("drained"):  # all steps are saved
        assert e["step"] == max(before), (e, before)
        continue
    assert e["step"] % 10 == 0 and (not before or newest <= e["step"] <= max(before)), (e, before, newest)
if drill.startswith("first"):
    assert next(e["step"] for e in events if e["event"] == "ended") == 0, events
for node in re.findall("begin node ([1-9])", drill):
    assert any(e["event"] == "check" and e["node"] == int(node) and e["problem"] == "" for e in events), events
if "INT" in drill:
    run = json.load(open(os.path.dirname(record) + "/run.json"))
    assert run["exit_code"] == 130 and "signal 2" in run["why"], run
PY
    local restarted
    restarted=$(grep -c "the job starts again" "$name.0.log")
    [ "$row_ends" != "${row_ends%done}" ] && [ "$nodes" -eq 1 ] || return 0
    [ "$restarted" -eq $(($(wc -w <<< "$row_ends") - 1)) ] || bad "it said $restarted times that it starts again"
    grep -qE "goodput .* $restarted restarts?\$" "$name.0.log" || bad "no line with the goodput"
}
said() {
    local cause=${row_ends%%:*} who=${row_ends##*:} own
    own=$(cat "$name".?.log)
    if [ "$cause" = process ]; then
        grep -q "rank $who (pid $victim) was killed by signal 9" <<< "$own" || bad "the dead rank is not named"
    elif [ "$cause" = hang ]; then
        own=$(grep "\[rank $((1 - who))\]" <<< "$own")
        grep -q "rank $who .*SIGSTOP" <<< "$own" || bad "the stopped rank and its state are not named"
    fi
    [ "$cause" != process ] || [ -z "$says" ] || own=$(grep -A1 "\[rank $((1 - who))\]" <<< "$own")
    grep -qE -- "$says" <<< "$own" || bad "it does not say \"$says\""
}
# Runs alone in the long form, where times count: a kill ends a job within 5 s, a silent rank is reported 2 s after its
# bound and the job ends within 3 s more.
in_time() {
    [ -n "${ORRERY_LONG:-}" ] && [ "$restarts" -eq 0 ] || return 0
    case "$row_ends" in
    process*) [ $took -le 5000 ] || bad "ended after $took ms, expected at most 5000" ;;
    hang*)
        local bound
        bound=$(of bound 20)
        [ "$bound" -gt 0 ] || bound=10
        [ $took -le $((bound * 1000 + 5000)) ] || bad "ended after $took ms, expected at most $bound s and 5 s"
        ;;
    esac
}

# play NAME: 77 where this machine cannot.
play() {
    trap 'jobs -p | xargs -r kill -9 2> /dev/null' EXIT
    local IFS=$'|' row_name
    name=$1 folder=$1
    IFS='|' read -r row_name job events row_ends code says after more < <(grep "^$name *|" "$rows") ||
        fail "no row $name"
    trim() { sed 's/^ *//; s/ *$//' <<< "$1"; }
    IFS=$' \t\n'
    job=$(trim "$job") row_ends=$(trim "$row_ends") code=$(trim "$code") says=$(trim "$says") after=$(trim "$after")
    restarts=$(of restarts 0) nodes=$(of nodes 1) spares=$(of spares 0) ranks=$(of ranks 2)
    declare -gA node=()
    leaving=
    victim= before= struck=$(ms) took=0
    prepare
    [[ $more != *transport=* ]] ||
        [ -e "$(dirname "$orrery")/plugins/liborrery_$(sed 's/.*\(transport\)=\([a-z]*\).*/\1_\2/' <<< "$more").so" ] ||
        { echo "$name: skipped: no such transport here"; exit 77; }
    [ "$nodes" -eq 1 ] || [ -n "$network" ] || { echo "$name: skipped: no network namespaces here"; exit 77; }
    if [[ $events = *freeze* ]]; then
        mkdir -p disk
        [ "$(id -u)" -eq 0 ] && truncate -s 100M disk.img && mkfs.ext4 -q disk.img && mount -o loop disk.img disk ||
            { echo "$name: skipped: no file system to mount here"; exit 77; }
        folder=disk/$name
    fi
    if [[ $events = *break* ]]; then
        rm -rf broken && mkdir broken && cp "$(dirname "$orrery")"/{orrery,liborrery.so} broken &&
            cp -r "$(dirname "$orrery")/plugins" broken || fail "no copy of the program"
        settings+=(--set lua.library="$source_root/scripts")
    fi
    record=$folder/events.jsonl
    local all event
    IFS=';' read -r -a all <<< "$events"
    for event in "${all[@]}"; do
        set -- $event
        case $1 in first | each | end) in_rank "$1" "$2" "$3" "${4:-}" ;; esac
    done
    begin_all
    for event in "${all[@]}"; do happens $event; done
    ends "$code"
    if [ "$restarts" -gt 0 ] && [ "$row_ends" != - ]; then recorded; fi
    if [ "$restarts" -gt 0 ]; then
        tr '\n' ' ' < <(cat "$name".?.log) | grep -qE -- "$says" || bad "it does not say \"$says\""
    else
        said
    fi
    in_time
    # A missing node is waited for as long as --wait-node says.
    [ "$code" -ne 75 ] || [ $took -ge $(($(of wait 0) * 1000)) ] || bad "it waited only $took ms for the missing node"
    [ ! -d "$folder.away" ] || [ -z "$(ls -d "$folder"/checkpoints/step-* 2> /dev/null)" ] ||
        bad "a step is saved in another folder"
    if [ "$after" = resumes ]; then
        begin_all
        ends 0
    fi
    [ "$after" = - ] || same
    [ ! -d disk ] || { umount disk; rmdir disk; }
    [ -z "${group:-}" ] || rmdir "$group"
    echo "$name: $row_ends, exit code $code, as the row says; $((($(ms) - struck) / 1000)) s"
}

chosen=${*:-$(sed -n 's/^\([a-z0-9_]*\) *|.*/\1/p' "$rows")}
export ORRERY_TOKEN=a-secret-of-all-nodes
for name in $chosen; do
    grep -q "^$name *|.*nodes=" "$rows" && [ -z "$network" ] || continue
    make_network && network=made || echo "no network of nodes: $(head -1 netns.log)"
    break
done
table=${ORRERY_LONG:-/dev/null}
: > "$table"
wrong=0 skipped=0 all=0
for name in $chosen; do
    for ((i = 0; i < ${ORRERY_TIMES:-1}; ++i)); do
        all=$((all + 1))
        rm -rf "$name" "$name".*
        (play "$name") > said.txt 2>&1
        case $? in
        0) ;;
        77) skipped=$((skipped + 1)) ;;
        *) wrong=$((wrong + 1)) && echo "$name: WRONG" >> said.txt ;;
        esac
        cat said.txt
        tail -n 1 said.txt >> "$table"
    done
done
echo "$all rows, $skipped skipped, $wrong wrong" | tee -a "$table"
[ $wrong -eq 0 ] || exit 1
[ $skipped -lt $all ] || exit 77
