#!/usr/bin/env bash
# Two hosts of an sshd each (network namespaces) train by `orrery submit --engine ssh` with the losses of one host;
# status and stop by ssh; what is wrong with a host is refused before an agent starts. ORRERY_LONG: one host is lost and
# back, by its network and as after a reboot: a table.
if [ -z "${INSIDE:-}" ]; then
    for program in ssh sshd ssh-keygen ip; do
        PATH=$PATH:/usr/sbin command -v $program > /dev/null || { echo "skipped: $program is not installed"; exit 77; }
    done
    spaces=(unshare --net --mount --pid --fork --kill-child --mount-proc)
    "${spaces[@]}" true 2> /dev/null || { echo "skipped: cannot make a namespace here"; exit 77; }
    INSIDE=yes exec "${spaces[@]}" bash "$0"
fi
source "$(dirname "$0")/lib.sh"
long=${ORRERY_LONG:-}
sshd=$(PATH=$PATH:/usr/sbin command -v sshd)
mount -t tmpfs tmpfs /run && mkdir /run/sshd || fail "a /run of its own"

# Host 1 is this shell's network; host 2 has a network and mounts of its own, of which `on_2` changes what it sees.
ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -q -t ed25519 -N '' -f mine || fail "keys"
server() {
    cat > sshd$1.conf <<CONF
Port 2222
ListenAddress 10.79.0.$1
HostKey $work/key
AuthorizedKeysFile $work/$2
StrictModes no
UsePAM no
PasswordAuthentication $3
KbdInteractiveAuthentication no
PermitRootLogin yes
PidFile none
CONF
}
server 1 mine.pub no && server 2 mine.pub no && server 3 none.pub no
unshare --net --mount sh -c "until [ -e linked ]; do sleep 0.02; done; exec $sshd -D -e -f $work/sshd2.conf" 2> s2.log &
second=$!
on_2() { nsenter --target $second --net --mount "$@"; }
wait_for test -e /proc/$second/ns/net
until [ "$(readlink /proc/$second/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
ip link set lo up && ip link add link1 type veth peer name link2 && ip link set link2 netns $second || fail "veth"
ip addr add 10.79.0.1/24 dev link1 && ip addr add 10.79.0.3/32 dev lo && ip link set link1 up || fail "host 1"
on_2 sh -c 'ip link set lo up && ip addr add 10.79.0.2/24 dev link2 && ip link set link2 up' || fail "host 2"
touch linked
"$sshd" -D -e -f "$work/sshd1.conf" 2> s1.log &
"$sshd" -D -e -f "$work/sshd3.conf" 2> s3.log &
cat > config <<CONF
Host desk1
  HostName 10.79.0.1
Host desk1b
  HostName 10.79.0.1
Host desk2
  HostName 10.79.0.2
Host locked
  HostName 10.79.0.3
Host stranger
  HostName 10.79.0.2
  HostKeyAlias stranger
Host *
  Port 2222
  User $(id -un)
  IdentityFile $work/mine
  IdentitiesOnly yes
  UserKnownHostsFile $work/known
  GlobalKnownHostsFile /dev/null
CONF
for i in 1 2 3; do echo "[10.79.0.$i]:2222 $(cut -d ' ' -f 1,2 key.pub)"; done > known
listens() { (: < /dev/tcp/$1/2222) 2> /dev/null; }
for i in 1 2 3; do wait_for listens 10.79.0.$i || { cat s$i.log; fail "sshd of host $i"; }; done
printf 'desk1 slots=1\ndesk2 slots=1\n' > hosts.txt

mkdir data code && mv text.txt data && cp "$source_root/scripts/gpt.lua" code
cat > job.toml <<CONF
[submit]
nodes = 2
[submit.ssh]
hostfile = "hosts.txt"
extra = ["-F", "$work/config", "-o", "ConnectTimeout=300", "-o", "ServerAliveInterval=0"]  # a busy machine
[data]
path = "data/text.txt"
[run]
transport = "gloo"
threads_per_rank = 1
CONF
# tiny run|submit FOLDER STEPS [more arguments]
tiny() {
    local command=$1 folder=$2 steps=$3
    shift 3
    $orrery $command code/gpt.lua --config job.toml --set run.folder="$folder" --set run.seed=5 \
        --set mesh.dp=2 --set data.tokens_per_sequence=32 --set train.sequences_per_step=4 --set train.steps="$steps" \
        --set checkpoint.every_steps=10 --set script.layers=2 --set script.embed=48 --set script.heads=3 "$@"
}
submit() { tiny "submit --engine ssh" "$@"; }
done_in() { grep -q '"event":"end","exit_code":0' "$1/events.jsonl" 2> /dev/null; }
agents() { pgrep -fc -- '--node-rank' || true; }
no_agents() { [ "$(agents)" = 0 ]; }
steps=30
tiny run one $steps > one.log 2>&1 || { cat one.log; fail "two ranks of one host"; }
submit two $steps > two.log 2>&1 || { cat two.log s*.log; fail "submit"; }
wait_for done_in two || { cat two.log two/logs/node*.txt; fail "the job does not end"; }
wait_for no_agents || fail "agents stay when the job has ended"
losses one > one.txt
losses two > two.txt
cmp one.txt two.txt || { diff one.txt two.txt | head -4; fail "other losses on two desks"; }
grep -q '"name": "desk1:'"$work/two\"" two/job.json || { cat two/job.json; fail "job.json"; }
exits 0 status $orrery status two
grep -q "with exit code 0: done" status.txt || { cat status.txt; fail "status of a job that ended"; }
echo "two desks: $steps steps with the losses of one host, bit for bit"

submit long 1000000 > long.log 2>&1 || { cat long.log; fail "submit"; }
wait_for steps_done long 5 || { cat long/logs/node*.txt; fail "no step"; }
grep -qa "$(cat long/token)" /proc/[0-9]*/cmdline && fail "the secret is in a command line"
exits 0 status $orrery status long
[ "$(grep -c "job desk1:$work/long runs, process" status.txt)" = 2 ] || { cat status.txt; fail "status"; }
refused "long already has job desk1:|choose another run.folder" submit long 10
exits 0 stop $orrery stop long
wait_for no_agents || { cat stop.txt stop.err; fail "stop ends no agent"; }
grep -Eq '"event":"end","exit_code":(75|130),"why":"stopped by signal 2 on node 0' long/events.jsonl ||
    { cat long/events.jsonl; fail "not stopped"; }
saved=$(tail -1 long/metrics.jsonl | sed 's/.*"step":\([0-9]*\).*/\1/')
submit long 1000000 > long.log 2>&1 || { cat long.log; fail "submit again"; }
wait_for grep -q '"event":"training","step":'"$saved," long/events.jsonl ||
    { cat long/events.jsonl; fail "lost steps"; }
exits 0 stop $orrery stop long --now
wait_for no_agents || { cat stop.txt stop.err; fail "stop --now ends no agent"; }
exits 1 late $orrery stop long
grep -q "desk2, node 1: does not run" late.txt || { cat late.txt late.err; fail "stop of a job that ended"; }
wait_for sh -c '! pgrep -f [c]ode/gpt.lua' > /dev/null || fail "ranks outlive their agents"
echo "status; stop saves step $saved, from which the next submit resumes; stop --now"

# One host is lost and back: its network for longer than run.silence_s, then its agent, as after a reboot.
if [ -n "$long" ]; then
    export patience=60000
    steps=20000
    tiny run calm $steps > calm.log 2>&1 || { tail calm.log; fail "two ranks of one host"; }
    submit lost $steps --restarts 9 > lost.log 2>&1 || { cat lost.log; fail "submit"; }
    trained() { [ "$(grep -c '"event":"training"' lost/events.jsonl 2> /dev/null)" -ge "$1" ]; }
    gone() { [ "$(grep -c '"node":1,"is":"lost"' lost/events.jsonl)" -ge "$1" ]; }
    wait_for steps_done lost 200 || { cat lost/logs/node*.txt; fail "no step"; }
    ip link set link1 down
    wait_for gone 1 || { cat lost/events.jsonl; fail "host 2 is not missed"; }
    ip link set link1 up
    wait_for trained 2 || { cat lost/events.jsonl lost/logs/node*.txt; fail "host 2 is not back"; }
    reached=$(grep -c '"loss"' lost/metrics.jsonl)
    wait_for steps_done lost $((reached + 200)) || fail "no step after the network was back"
    read -r pid rest < lost/ssh/1.pid
    kill -KILL "$pid"
    wait_for gone 2 || { cat lost/events.jsonl; fail "the agent of host 2 is not missed"; }
    exits 0 status $orrery status lost
    grep -q "desk2, node 1: does not run" status.txt || { cat status.txt; fail "status does not tell"; }
    ssh -F config desk2 sh "$work/lost/ssh/node.sh" 1 > again.txt || { cat again.txt; fail "node.sh"; }
    wait_for trained 3 || { cat lost/events.jsonl lost/logs/node*.txt; fail "node 1 is not back"; }
    wait_for done_in lost || { cat lost/events.jsonl lost/logs/node*.txt; fail "the job does not end"; }
    losses lost > lost.txt
    losses calm | cmp - lost.txt || fail "other losses"
    # A node is asked to leave: a spare takes its slot; the second time there is none, and the job waits for it.
    printf 'desk1\ndesk2\ndesk1b\n' > hosts.txt
    submit drained 1000000 --restarts 9 --spares 1 > drained.log 2>&1 || { cat drained.log; fail "submit"; }
    leaves() {
        read -r pid rest < drained/ssh/$1.pid
        kill -TERM "$pid"
        wait_for grep -q "\"event\":\"drained\",\"node\":$1" drained/events.jsonl || fail "node $1 does not leave"
    }
    wait_for steps_done drained 5 || { cat drained/logs/node*.txt; fail "no step"; }
    leaves 1
    again() { [ "$(grep -c '"event":"training"' drained/events.jsonl)" -ge 2 ]; }
    wait_for again || { cat drained/events.jsonl drained/logs/node*.txt; fail "no spare"; }
    leaves 2
    exits 0 stop $orrery stop drained
    wait_for no_agents || { cat stop.txt stop.err; fail "stop ends no agent"; }
    tail -n 1 drained/events.jsonl | grep -q '"exit_code":130,"why":"stopped by signal 2 on node 0' ||
        { cat drained/events.jsonl; fail "not stopped"; }
    printf '%s\n' "host 2 without network, and back: the ranks resumed" \
        "host 2 without its agent, started again by node.sh: the ranks resumed" \
        "$steps steps with the losses of one host, bit for bit" \
        "host 2 drained, then the spare: orrery stop ends the job that waits for them" | tee "$long"
    exit
fi

# Interrupted while one of two agents starts, or fails to start, which nobody reads any more: none stays.
for reply in 0 255; do
    cat > slow_ssh <<SH
#!/bin/sh
case "\$*" in *desk2*start)
    touch starting
    sleep 1
    [ $reply = 0 ] || { echo "no connection" >&2; exit $reply; } ;;
esac
exec ssh "\$@"
SH
    chmod +x slow_ssh
    rm -rf starting cut
    setsid bash -c "$(declare -f tiny submit)
        orrery=$orrery; submit cut 1000000 --set submit.ssh.program=$work/slow_ssh" > cut.log 2>&1 &
    cut=$!
    wait_for test -e starting || { cat cut.log; fail "no start"; }
    kill -TERM -- -$cut
    wait_for sh -c "! pgrep -g $cut" > /dev/null || fail "submit does not end"
    wait_for no_agents || { cat cut.log; fail "agents of an interrupted submit stay"; }
done
echo "an interrupted submit leaves no agent"

# What is wrong with a host.
says() {
    local words=$1
    shift
    refused "$words" submit bad 10 "$@"
    no_agents && [ ! -e bad/events.jsonl ] || fail "$words: an agent has started"
    rm -rf bad
    echo "refused: ${words%%|*}"
}
printf 'desk1 slots=1\ndesk2 solts=1\n' > typo.txt
says 'typo.txt:2: "solts=1" after desk2, expected slots=N|write desk2 slots=4' --set submit.ssh.hostfile=typo.txt
echo "mistake: a hostfile with a typo"
printf 'desk1\n' > few.txt
says "few.txt: names 1 host, but the job needs 2" --set submit.ssh.hostfile=few.txt
printf 'desk1\nlocked\nstranger\n' > odd.txt
says "odd.txt:2: locked: ssh cannot connect|Permission denied|ssh-copy-id locked" --set submit.ssh.hostfile=odd.txt
echo "mistake: a host that asks for a password"
printf 'desk1\nstranger\n' > unknown.txt
says "unknown.txt:2: stranger: ssh cannot connect|verification failed|by hand" --set submit.ssh.hostfile=unknown.txt
echo "mistake: a host that is unknown to ssh"
says "there is no program no-ssh|install it" --set submit.ssh.program=no-ssh
says "submit.time: ssh starts processes and does not limit" --set submit.time=1:00:00
says "submit.ssh.hostfile is missing|PBS_NODEFILE" --set submit.ssh.hostfile=
says "cannot reach desk1 at 127.0.0.1|submit.ssh.address" --set submit.ssh.address=127.0.0.1
says "desk1: cannot resolve nowhere.invalid, node 0's host" --set submit.ssh.address=nowhere.invalid

mkdir empty
# unlike PLACE WITH: host 2 sees WITH where PLACE is, until the next one.
unlike() { on_2 mount --bind "$(realpath "$2")" "$(realpath "$1")" || fail "host 2 cannot have another $1"; }
like() { on_2 umount "$(realpath "$1")" || fail "host 2 has another $1"; }
unlike code empty
says "desk2: orrery: script code/gpt.lua not found"
echo "mistake: a script that the second host lacks"
like code
unlike data empty
says "desk2: orrery: code/gpt.lua:|data file data/text.txt not found"
echo "mistake: a data file that the second host lacks"
like data
mkdir shared
unlike shared empty
refused "desk2: $work/shared/bad is not shared|choose a run.folder" submit shared/bad 10
like shared
echo "mistake: a shared folder that is not shared"
cat > other <<SH
#!/bin/sh
[ "\$1" = --version ] && exec cat $work/version
exit 0
SH
chmod +x other
unlike "$orrery" other
$orrery --version | sed 's/^orrery [0-9a-f]*, /orrery 00000000, /' > version
says "desk2 has another plugin ABI or protocol than desk1|orrery 00000000, |install the same package"
echo "mistake: another plugin ABI on the second host"
$orrery --version | sed 's/^rendezvous protocol .*/rendezvous protocol 0/' > version
says "desk2 has another plugin ABI or protocol than desk1|protocol 0"
echo "mistake: another protocol on the second host"
$orrery --version | sed 's/^\(  device.cpu *\)[0-9a-f]*/\10000000000000000000000000000000000000000/' > version
submit built 10 > built.log 2>&1
grep -q "note: desk2 has other builds than desk1, and may compute different bits: device/cpu" built.log ||
    { cat built.log; fail "no line on the other build of desk2"; }
like "$orrery"
$orrery stop built --now > /dev/null
echo "1 passed, 0 failed"
