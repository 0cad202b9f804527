#!/usr/bin/env bash
# Packages in bare systems, made by mmdebstrap, without a compiler and without a network: the .deb, an image of it, the
# wheel. In each `orrery init`, and the commands of its README word for word; the code is that of the build; the .deb is
# removed without a trace; no file of the wheel wants a newer glibc than its tag says.
# usage: [ORRERY_PACKAGES=FOLDER] bare.sh SOURCE BUILD
# FOLDER: packages that scripts/package made of BUILD; not set: they are made here.
set -euo pipefail
source=$1 build=$2 skips=0
work=$build/tests/packages
table=${ORRERY_LONG:-$work/table.txt}

fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "skipped: $*"; skips=$((skips + 1)); }
for tool in mmdebstrap patchelf unshare dpkg-deb; do
    command -v $tool > /dev/null || { echo "skipped: packages: there is no $tool (scripts/setup --engines)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: packages: only root can chroot"; exit 77; }
mkdir -p "$work"
rm -rf "$work"/{debs,wheel,deb,python,image,context,packages.log}
: > "$work/rows"
exec 3>&1 > "$work/packages.log" 2>&1
ended() { [ $? -eq 0 ] || tail -40 "$work/packages.log" >&3; rm -rf "$work"/{deb,python,image,context}; }
trap ended EXIT

mb() { awk "BEGIN { printf \"%.1f\", $1 / 1000000 }"; }
row() { printf '%-8s %-34s %12s\n' "$@" | tee -a "$work/rows" >&3; }

# The system that others are copies of: essential packages and apt.
[ -s "$work/base.tar" ] || {
    mmdebstrap --mode=root --variant=minbase bookworm "$work/new.tar" \
        $(find /etc/apt -name '*.list' -o -name '*.sources') || fail "mmdebstrap"
    mv "$work/new.tar" "$work/base.tar"
}
# system NAME PACKAGE...: the folder $work/NAME has such a system with these packages, whose files are in archives/.
system() {
    local name=$1 root=$work/$1 status=$work/$1/var/lib/dpkg/status
    shift
    mkdir -p "$root" "$work/archives/$name/partial"
    tar -C "$root" -xf "$work/base.tar"
    [ $# -gt 0 ] || return 0
    apt-get -qq -y --no-install-recommends --download-only -o Dir::State::status="$status" \
        -o Dir::Cache::archives="$work/archives/$name" install "$@" || fail "apt-get could not download $*"
}
# inside NAME COMMAND...: in that system, with processes, shared memory and a loopback of its own, and no network.
# `bound=FOLDER at=PLACE inside ...` shows a folder of this system there.
inside() {
    local root=$work/$1
    shift
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C bound="${bound:-}" at="${at:-}" \
        unshare --mount --pid --fork --net sh -ec '
        ip link set lo up
        mount -t proc proc "$0/proc"
        mkdir -p "$0/dev/shm"
        mount -t tmpfs tmpfs "$0/dev/shm"
        [ -z "$bound" ] || { mkdir -p "$0/$at"; mount --bind "$bound" "$0/$at"; }
        exec chroot "$0" "$@"' "$root" "$@"
}
# takes NAME: the system NAME gets the packages that `system` has fetched.
takes() {
    mkdir "$work/$1/packages"
    cp "$work/archives/$1"/*.deb "$work/$1/packages/"
    inside "$1" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        -o DPkg::Options::=--force-unsafe-io $(cd "$work/$1" && ls -d packages/*.deb | sed 's|^|/|')
    rm -r "$work/$1/packages"
}
# What a user does first; the last line is the seconds that it took.
cat > "$work/first.sh" << 'END'
set -eu
! command -v cc || exit 9
cd /srv
orrery init my_model
cd my_model
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md > /srv/steps.sh
begin=$(date +%s)
sh -eu /srv/steps.sh
[ -s exported/model.safetensors ]
grep -q '"step":200' runs/killed/metrics.jsonl
echo "seconds $(($(date +%s) - begin))"
END
first() {  # first NAME COMMAND...: runs it by `COMMAND...`, and adds a row
    local name=$1 log=$work/$1.log
    shift
    "$@" > "$log" 2>&1 || fail "$name: $(tail -5 "$log")"
    grep -q "resumed from step" "$log" || fail "$name: the killed run did not resume"
    row "$name" "README of init, s" "$(sed -n 's/^seconds //p' "$log")"
}
# digests: of liborrery and each plugin, as --version prints them.
digests() { awk 'length($2) == 40 { print $1, $2 }' "$1"; }
"$build/orrery" --version > "$work/version.build"
same_code() {
    [ "$(digests "$1" | wc -l)" -gt 20 ] || fail "$1: few digests"
    diff <(digests "$work/version.build") <(digests "$1") || fail "$1: other code than the build's"
}
loads_all() {  # CUDA's may lack its libraries
    ! grep "cannot be used" "$1" | grep -Ev ' (device/cuda|transport/nccl) ' || fail "$1: a plugin cannot be used"
}

# ---- .deb
packages=${ORRERY_PACKAGES:-$work/debs}
[ -n "${ORRERY_PACKAGES:-}" ] || cpack --config "$build/CPackConfig.cmake" -G DEB -B "$packages"
deb=$(echo "$packages"/orrery_*_amd64.deb) dev=$(echo "$packages"/orrery-dev_*_amd64.deb)
[ -z "$(dpkg-deb -c "$deb" | awk '$NF != "./" && $NF !~ /^\.\/usr\// { print }')" ] || fail "a file outside of /usr"
[ -z "$(dpkg-deb -c "$deb" | awk '$1 !~ /^d/ && $1 !~ /^-rw[-x]r-[-x]r-[-x]$/ || $2 != "root/root"')" ] ||
    fail "modes or owners of files"
row deb "package, MB" "$(mb "$(stat -c %s "$deb")")"
system deb "$deb"
rm -f "$work"/archives/deb/orrery_*
takes deb
# Names, kinds, modes, sizes; not dpkg's own records and the cache of the loader, which both have new contents.
files() {
    (cd "$work/deb" && find . -xdev ! -path './proc/*' ! -path './var/lib/dpkg/*-old' -printf '%p %y %m %U:%G %s\n') |
        grep -Ev '^\./(var/lib/dpkg/(status|lock.*)|var/log/dpkg.log|etc/ld.so.cache|var/cache/ldconfig/aux-cache) ' |
        awk '$2 == "d" { $5 = "" } 1' | sort
}
files > "$work/files.before"
mkdir "$work/deb/packages" && cp "$deb" "$dev" "$work/deb/packages/"
inside deb sh -c 'dpkg --force-unsafe-io -i /packages/*.deb && rm -r /packages'
row deb "files, MB" "$(mb "$(dpkg-deb -f "$deb" Installed-Size)000")"
inside deb orrery --version > "$work/version.deb"
same_code "$work/version.deb"
inside deb orrery plugins > "$work/plugins.deb"
loads_all "$work/plugins.deb"
[ "$(files | wc -l)" -gt "$(($(wc -l < "$work/files.before") + 100))" ] || fail "the list of files shows no package"
inside deb sh -c 'cd /usr/share && test -s man/man1/orrery.1 && test -s bash-completion/completions/orrery &&
    test -s orrery/manual/jobs.md && test -s orrery/configs/laptop.toml && test -s orrery/scripts/gpt.lua' ||
    fail "completion, manual or examples are missing"
cp "$work/first.sh" "$work/deb/srv/"
first deb inside deb sh /srv/first.sh
[ -z "$(inside deb dpkg -V orrery orrery-dev)" ] || fail "dpkg -V orrery orrery-dev"
echo >> "$work/deb/usr/share/man/man1/orrery.1"
[ -n "$(inside deb dpkg -V orrery)" ] || fail "dpkg -V sees no change"
rm -r "$work"/deb/srv/{first.sh,steps.sh,my_model}
inside deb dpkg --purge orrery orrery-dev
files > "$work/files.after"
diff "$work/files.before" "$work/files.after" || fail "dpkg --purge leaves or takes more than the package brought"
row deb "files left after dpkg --purge" 0

# ---- wheel
packages=${ORRERY_PACKAGES:-$work/wheel}
[ -n "${ORRERY_PACKAGES:-}" ] || "$source/scripts/wheel" "$packages" "$build"
wheel=$(echo "$packages"/orrery-*-manylinux_2_34_x86_64.whl)
row wheel "package, MB" "$(mb "$(stat -c %s "$wheel")")"
system python python3-venv
takes python
cp "$wheel" "$work/first.sh" "$work/python/srv/"
inside python sh -c 'python3 -m venv /srv/own && /srv/own/bin/pip install --no-index /srv/*.whl'
installed=$work/python/srv/own/lib/python3.11/site-packages/orrery
row wheel "files, MB" "$(mb "$(du -sxB1 --apparent-size "$installed" | cut -f1)")"
inside python /srv/own/bin/orrery --version > "$work/version.wheel"
same_code "$work/version.wheel"
inside python /srv/own/bin/orrery plugins > "$work/plugins.wheel"
loads_all "$work/plugins.wheel"
# CUDA's libraries, as Python's packages or a toolkit bring them.
cublas=$(sed -n 's/^orrery_cublasLt_library:FILEPATH=//p' "$build/CMakeCache.txt")
if [ -f "$cublas" ]; then
    grep -A2 "device/cuda .*cannot be used" "$work/plugins.wheel" | grep "libcublasLt" || fail "no word of libcublasLt"
    for at in srv/own/lib/python3.11/site-packages/nvidia/cu13/lib usr/local/cuda/lib64; do
        bound=$(dirname "$cublas") at=$at inside python /srv/own/bin/orrery plugins > "$work/plugins.cuda"
        ! grep "cannot be used" "$work/plugins.cuda" || fail "CUDA's libraries are not found in /$at"
    done
    row wheel "CUDA of nvidia's packages, toolkit" found
else
    skip "libraries of CUDA: the build has none"
fi
inside python sh -c 'cd /srv/own/share && test -s man/man1/orrery.1 && test -s bash-completion/completions/orrery'
first wheel inside python env PATH=/srv/own/bin:/usr/bin:/bin sh /srv/first.sh
mapfile -t binaries < <(find "$installed" -name '*.so*' -type f; echo "$installed/bin/orrery")
[ ${#binaries[@]} -gt 40 ] || fail "few binaries in the wheel"
newest=$(readelf -V --wide "${binaries[@]}" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1)
[ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -1)" = GLIBC_2.34 ] || fail "the wheel wants $newest"
row wheel "newest version of a symbol" "$newest"
# Nothing but glibc's own files, and CUDA's, comes from the system.
foreign=$(for file in "${binaries[@]}"; do patchelf --print-needed "$file"; done | sort -u |
    grep -vE '^lib(c|m|dl|rt|pthread|gcc_s)\.so\.[0-9]$|^ld-linux-x86-64\.so\.2$' |
    grep -vE '^liborrery\.so$|-orrery\.so|^lib(cublasLt|cudnn|nccl)\.so' || true)
[ -z "$foreign" ] || fail "the wheel needs of the system: $foreign"
inside python sh -c '/srv/own/bin/pip uninstall -qy orrery && test ! -e /srv/own/bin/orrery &&
    test ! -e /srv/own/lib/python3.11/site-packages/orrery'

# ---- image
engine_options() { echo '[containers]'; echo 'default_ulimits = []'; }
if command -v podman > /dev/null && command -v buildah > /dev/null; then
    engine_options > "$work/containers.conf"
    export CONTAINERS_CONF=$work/containers.conf
    store=(--root "$work/image/store" --runroot "$work/image/run" --storage-driver vfs)
    mkdir -p "$work/context"
    cp "$deb" "$work"/archives/deb/*.deb "$work/context/"
    podman "${store[@]}" import "$work/base.tar" localhost/base
    buildah "${store[@]}" bud --isolation chroot --build-arg BASE=localhost/base -t localhost/orrery \
        -f "$source/scripts/container/Containerfile" "$work/context"
    size() { podman "${store[@]}" image inspect --format '{{.Size}}' "localhost/$1"; }
    above=$(($(size orrery) - $(size base)))
    row image "above its base, MB" "$(mb $above)"
    [ $above -le 100000000 ] || fail "the image is $above bytes above its base, expected at most 100 MB"
    contained() {
        podman "${store[@]}" run --rm --runtime runc --cgroup-manager=cgroupfs --ulimit host --network none "$@"
    }
    contained localhost/orrery --version > "$work/version.image"
    same_code "$work/version.image"
    first image contained -v "$work/first.sh:/first.sh:ro" --entrypoint sh localhost/orrery /first.sh
    contained --entrypoint sh localhost/orrery -c '! ls /packages/*.deb /usr/local/cuda* 2> /dev/null'
else
    skip "image: there is no podman or buildah (scripts/setup --engines)"
fi
architectures=
[ ! -f "$cublas" ] || architectures=$(sed -n 's/^ORRERY_CUDA_ARCHITECTURES:STRING=//p' "$build/CMakeCache.txt")
{
    echo "Packages in bare systems, with CUDA code for: ${architectures:-nothing}; see tests/packages."
    cat "$work/rows"
} > "$table"
echo "3 kinds of packages, $skips skipped" >&3
