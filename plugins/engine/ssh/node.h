#pragma once

/// Shell for the hosts of a job. It is sent over ssh's standard input, so that the login shell there does not matter.
namespace orrery::on_host {

/// Functions of all texts: `refuse` exits with a message; `agent` sets pid, and succeeds if node $node of the job in
/// folder $run has an agent, started by this user, that runs on this host.
inline constexpr const char* functions = R"sh(refuse() { printf '%s\n  %s\n' "$1" "$2" >&2; exit 2; }
started() { sed 's/.*) //' "/proc/$1/stat" 2> /dev/null | cut -d ' ' -f 20; }
boot() { cat /proc/sys/kernel/random/boot_id; }
agent() {
    [ -O "$run/ssh/$node.pid" ] && read -r pid since boot < "$run/ssh/$node.pid" || return 1
    [ "$boot" = "$(boot)" ] && [ -n "$since" ] && [ "$since" = "$(started "$pid")" ]
}
)sh";

/// Checks the host of node $node. $address: what all nodes call node 0's host, "" for a job of one node.
inline constexpr const char* check = R"sh(check() {
    seen=$(ls -d /dev/nvidia[0-9]* 2> /dev/null | wc -l)
    [ "$seen" -ge "$gpus" ] || refuse "has $seen GPUs, and the job needs $gpus" "change submit.gpus_per_node"
    tries=0
    until [ "$(cat "$run/ssh/probe" 2> /dev/null)" = "$probe" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 20 ] ||
            refuse "$run is not shared: a file that was written there by the submitting host does not appear" \
                "choose a run.folder that all hosts have at the same path, as on NFS"
        sleep 0.25
    done
    (: > "$run/ssh/probe.$node" && rm "$run/ssh/probe.$node") ||
        refuse "cannot write to $run" "let the same user write there on each host"
    ! agent || refuse "node $node of this job runs here already, process $pid" "end it: orrery stop $run"
    if [ -n "$address" ] && command -v getent > /dev/null; then
        found=$(getent ahosts "$(echo "$address" | tr -d '[]')" | sed -n '1s/ .*//p')
        case $found in
        "") refuse "cannot resolve $address, node 0's host" "set submit.ssh.address to one that all hosts reach" ;;
        127.* | ::1)
            refuse "resolves node 0's host $address to $found, a loopback address, which other hosts cannot reach" \
                "set submit.ssh.address to an address of node 0 in its network" ;;
        esac
    fi
    "$orrery" --version || refuse "$orrery --version fails" "install the package again, the same on all hosts"
    reply=$(check_script 2>&1 > /dev/null) || { printf '%s\n' "$reply" | tail -n 20 >&2; exit 2; }
}
)sh";

/// Starts node $node's agent so that it outlives this connection, and waits until it has begun. Not with "&", since a
/// shell ignores SIGINT in what it starts so.
inline constexpr const char* start = R"sh(start() {
    ! agent || refuse "node $node of this job runs here already, process $pid" "end it: orrery stop $run"
    rm -f "$run/ssh/$node.pid"
    setsid -f sh "$run/ssh/node.sh" "$node" agent >> "$run/logs/node$node.txt" 2>&1 < /dev/null
    tries=0
    until [ -s "$run/ssh/$node.pid" ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 120 ] || refuse "the agent does not start" "read $run/logs/node$node.txt"
        sleep 0.25
    done
    echo "process $(cut -d ' ' -f 1 "$run/ssh/$node.pid")"
}
run_agent() {
    printf '%s %s %s\n' "$$" "$(started "$$")" "$(boot)" > "$run/ssh/$node.pid"
    become_agent
}
)sh";

/// Prints the state of node $node's agent.
inline constexpr const char* state = R"sh(if agent; then
    echo "runs, process $pid"
else
    echo "does not run; its last line: $(tail -n 1 "$run/logs/node$node.txt" 2> /dev/null)"
    echo "  to start it again there: sh $run/ssh/node.sh $node"
    exit 3
fi
)sh";

/// Ends node $node's agent with signal $signal, and reports it.
inline constexpr const char* stop = R"sh(agent || { echo "does not run"; exit 3; }
kill -s "$signal" "$pid" && echo "process $pid gets SIG$signal"
)sh";

}  // namespace orrery::on_host
