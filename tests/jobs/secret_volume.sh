#!/usr/bin/env bash
# A token's file that others may read is taken in the volume of a Secret of Kubernetes alone: not in a tmpfs of the host,
# however a container sees it.
source "$(dirname "$0")/lib.sh"
unshare --mount --pid --fork --mount-proc true 2> /dev/null || { echo "skipped: no mounts of its own"; exit 77; }
cat > job.toml <<'TOML'
[run]
transport = "gloo"
[mesh]
dp = 2
[data]
path = "text.txt"
tokens_per_sequence = 32
TOML
# A token of five letters: if the file is taken, its length is refused.
# volume FOLDER: a tmpfs there as the kubelet makes it.
volume() {
    mkdir -p "$1"
    mount -t tmpfs -o "size=1m,mode=1777" secret "$1"
    mkdir "$1/..2026_11_30"
    ln -s ..2026_11_30 "$1/..data"
    ln -s ..data/token "$1/token"
    echo short > "$1/..2026_11_30/token"
    chmod 444 "$1/..2026_11_30/token"
    echo short > "$1/flat"
    chmod 444 "$1/flat"
    mkdir "$1/plain"
    cp "$1/flat" "$1/plain/token"
}
# token FILE [COMMAND...]: what `orrery run` says of it.
token() {
    local file=$1
    shift
    ORRERY_TOKEN_FILE=$file "$@" "$orrery" run "$source_root/scripts/gpt.lua" --config job.toml --nodes 2 \
        --rendezvous 192.0.2.1:29912 2>&1
}
taken() { [[ $(token "$@") == *"has 5 characters"* ]] || { token "$@"; fail "$*: not taken"; }; echo "$*: taken"; }
others_read() {
    [[ $(token "$@") == *"others may read it, expected 0600"*"Secret"* ]] || { token "$@"; fail "$*: taken"; }
    echo "$1: refused"
}
export -f volume token taken others_read fail
export orrery source_root work

cat > container.sh <<'SH'
set -e
volume secret && mkdir pod part rw
mount --bind secret pod && mount -o remount,bind,ro pod
mount --bind secret rw
mount --bind secret/..2026_11_30 part && mount -o remount,bind,ro part
mkdir "a b" && mount --bind secret "a b" && mount -o remount,bind,ro "a b"
taken pod/token
taken "a b/token"
others_read rw/token          # writable here: a tmpfs that all share
others_read pod/flat          # not in a folder of a date
others_read pod/plain/token
others_read part/token        # a part of a tmpfs
chmod 464 secret/..2026_11_30/token
[[ $(token pod/token) == *"has mode 0464: others may read or write it"* ]] || fail "a token that others write"
chmod 400 secret/..2026_11_30/token && taken rw/token && chmod 440 secret/..2026_11_30/token && taken pod/token
chown 7 secret/..2026_11_30/token
[[ $(token pod/token) == *"belongs to user 7, expected the current user 0 or root"* ]] || fail "a token of another user"
chown 0 secret/..2026_11_30/token
mkdir disk && mkdir disk/..2026_11_30 && cp secret/flat disk/..2026_11_30/token && mount --bind disk disk
mount -o remount,bind,ro disk
others_read disk/..2026_11_30/token  # not a tmpfs
chmod 644 secret/..2026_11_30/token
if command -v setpriv > /dev/null && setpriv --reuid=65534 --clear-groups test -x "$orrery"; then
    chmod 755 . && taken pod/token setpriv --reuid=65534 --clear-groups
fi
SH
unshare --mount --pid --fork --mount-proc bash container.sh || fail "in a container"

# The host's process namespace. Root sees there that the mounts are its own; another user cannot see whose they are.
cat > host.sh <<'SH'
set -e
volume secret && mkdir -p pod && mount --bind secret pod && mount -o remount,bind,ro pod
[ "$(stat -L -c %i /proc/self/ns/pid)" = 4026531836 ] || exit 0  # this test itself runs in a container
taken pod/token
others_read pod/token unshare --pid --fork  # process 1 of /proc is the host's
if command -v setpriv > /dev/null && setpriv --reuid=65534 --clear-groups test -x "$orrery"; then
    others_read pod/token setpriv --reuid=65534 --clear-groups
fi
SH
unshare --mount bash host.sh || fail "in the host's process namespace"
echo "1 passed, 0 failed"
