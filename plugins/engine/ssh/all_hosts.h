#pragma once

/// Shell where `orrery submit`, `status` and `stop` run, for all hosts of a job.
namespace orrery::on_all_hosts {

/// Checks every host, then starts an agent on each; ends what it has started if one fails or this shell is stopped.
inline constexpr const char* submit = R"sh(
refuse() { printf '%s\n  %s\n' "$1" "$2" >&2; exit 2; }

given() { printf "address='%s'\nprobe='%s'\n" "$address" "$probe"; }

# part NODE HOST WHAT: the node's script there. Its output, errors and exit code become files in $own.
part() {
    { given; node_script; } | on "$2" sh -s "$1" "$3" > "$own/$1.out" 2> "$own/$1.err"
    echo $? > "$own/$1.code"
}

# each WHAT: the same on all hosts of the input at the same time. What starts agents is not interrupted.
each() {
    [ "$1" = check ] || trap '' INT TERM HUP  # a subshell: this one sees the signal afterwards
    while read -r node host line; do part "$node" "$host" "$1" & done
    wait
}

remedy() {  # HOST: what to do after ssh's words $reply
    case $reply in
    *"HOST IDENTIFICATION HAS CHANGED"*)
        echo "its host key differs from the one in known_hosts: find out why, then ssh-keygen -R ${1#*@}" ;;
    *"Host key verification failed"* | *"host key is known"*)
        echo "connect once by hand, and compare its key with the one that the host itself has: ssh $1" ;;
    *"Permission denied"*) echo "let it accept your key, so that it asks for no password: ssh-copy-id $1, or ssh-add" ;;
    *"resolve hostname"*) echo "correct the name, or give it a HostName in ~/.ssh/config" ;;
    *) echo "try it by hand: ssh -o BatchMode=yes $1 true" ;;
    esac
}

# Reports the hosts of the input where the last part failed; succeeds if there is none.
passed() {
    bad=0
    while read -r node host line; do
        code=$(cat "$own/$node.code" 2> /dev/null || echo none)
        [ "$code" != 0 ] || continue
        bad=1
        reply=$(cat "$own/$node.err" 2> /dev/null)
        [ "$code" != 255 ] || reply="ssh cannot connect: $reply
  $(remedy "$host")"
        printf '%s:%s: %s: %s\n' "$file" "$line" "$host" "$reply" >&2
    done
    return $bad
}

interface() { grep -E '^orrery [^ ]+, |^rendezvous protocol ' "$own/$1.out"; }
code_of() { sed -n 's/^  \([a-z_/]*\) *\([0-9a-f]\{40\}\) .*/\1 \2/p' "$own/$1.out" | sort; }

# Compares the versions of the hosts of the input with the first's.
same_versions() {
    bad=0
    interface 0 > "$own/interface"
    code_of 0 > "$own/code"
    while read -r node host line; do
        if [ "$(interface "$node")" != "$(cat "$own/interface")" ]; then
            bad=1
            printf '%s:%s: %s has another plugin ABI or protocol than %s\n  %s: %s\n  %s: %s\n  install %s\n' \
                "$file" "$line" "$host" "$first" "$host" "$(interface "$node" | tr '\n' ' ')" \
                "$first" "$(tr '\n' ' ' < "$own/interface")" "the same package on both" >&2
        fi
        code_of "$node" > "$own/other"
        differs=$(comm -3 "$own/code" "$own/other" | tr -d '\t' | cut -d ' ' -f 1 | sort -u | tr '\n' ' ')
        [ -z "$differs" ] ||
            echo "note: $host has other builds than $first, and may compute different bits: $differs" >&2
    done
    return $bad
}

# Ends every agent of the job.
undo() {
    while read -r node host line; do
        { echo "node=$node"; ender; } | on "$host" sh > "$own/undo" 2>&1
        [ $? != 255 ] || echo "$host cannot be reached: its agent, if it started, ends after --wait-node" >&2
    done
}

main() {
    command -v "$ssh" > /dev/null || refuse "there is no program $ssh" "install it (Debian: openssh-client)"
    own=$(mktemp -d) || exit 1
    trap 'rm -rf "$own"' EXIT
    stopped=
    trap 'stopped=yes' INT TERM HUP
    trap '' PIPE  # orrery may have been stopped, too
    hosts > "$own/hosts"
    probe=$(od -An -N8 -tx8 /dev/urandom | tr -d ' \n')
    [ "$nodes" = 1 ] || [ -n "$address" ] || address=$(dialled "$first")
    case $address in
    localhost | 127.* | ::1)
        refuse "$file: other hosts cannot reach $first at $address" \
            "set submit.ssh.address to an address of $first in its network" ;;
    *:*) address="[$address]" ;;
    esac
    mkdir -p "$run/logs" && (umask 077 && mkdir -p "$run/ssh" && cp "$own/hosts" "$run/ssh/hosts" &&
        { given; node_script; } > "$run/ssh/node.sh" && printf '%s\n' "$probe" > "$run/ssh/probe") ||
        refuse "cannot write to $run" "choose another run.folder"
    each check < "$own/hosts"
    rm -f "$run/ssh/probe"
    [ -z "$stopped" ] || exit 130
    passed < "$own/hosts" || exit 2
    same_versions < "$own/hosts" || exit 2
    rm -f "$own"/*.code
    (each start) < "$own/hosts"
    if ! passed < "$own/hosts" || [ -n "$stopped" ]; then
        trap '' INT TERM HUP
        undo < "$own/hosts"
        [ -z "$stopped" ] || exit 130
        exit 1
    fi
    while read -r node host line; do echo "$host: node $node, $(tail -n 1 "$own/$node.out")"; done < "$own/hosts"
    echo "started $first:$run"
}
main < /dev/null
)sh";

/// Runs `there` on the hosts of the job one after the other; the line of each where the job may run has its name. A job
/// that is asked to stop by SIGINT is ended by node 0, if that runs. With a signal it fails unless an agent got it
/// and every host was reached.
inline constexpr const char* ask = R"sh(
main() {
    table=$(cat "$run/ssh/hosts" 2> /dev/null) || table=$(list | on "$first" sh) || exit
    printf '%s\n' "$table" | {
        sent= unknown=
        while read -r node host line; do
            case $node$host in
            "" | *[!A-Za-z0-9@._:%-]*) echo "$run/ssh/hosts is damaged: \"$node $host\"" >&2; exit 1 ;;
            esac
            reply=$({ echo "node=$node"; there; } | on "$host" sh 2>&1)
            code=$?
            case $code in
            0) sent=yes reply="job $first:$run $reply" ;;
            3) ;;
            255) unknown=yes reply="job $first:$run may run, but ssh cannot connect: $reply" ;;
            *) unknown=yes ;;
            esac
            printf '%s, node %s: %s\n' "$host" "$node" "$reply"
            [ "$code$node$signal" != 00INT ] || break
        done
        [ -z "$signal" ] || [ "$sent-$unknown" = yes- ]
    }
}
main < /dev/null
)sh";

}  // namespace orrery::on_all_hosts
