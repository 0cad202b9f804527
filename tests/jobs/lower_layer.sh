#!/usr/bin/env bash
# A run whose older steps cannot be renamed or removed, in the lower layer of an overlay (an image that holds a run) or
# immutable, and file systems without flock: nothing blocks the run, what is left is named. Needs root; a part that this
# machine does not allow is skipped by name.
source "$(dirname "$0")/lib.sh"
[ "$(id -u)" -eq 0 ] || { echo "skipped: it needs root to mount an overlay"; exit 77; }
# spoil FILE: one byte of it is another one.
spoil() { printf '\xff' | dd of="$1" bs=1 seek=300 conv=notrunc 2> /dev/null; }
leave() {
    for folder in merged layers; do mountpoint -q "$work/$folder" && umount "$work/$folder"; done
    chattr -R -i "$work" 2> /dev/null
    jobs -p | xargs -r kill -9 2> /dev/null
    cd / && rm -rf "$work"
}
trap leave EXIT
run() {
    local folder=$1 steps=$2
    shift 2
    run_tiny "$folder" "$steps" --set mesh.dp=1 --set train.evaluate_every=0 --set checkpoint.keep=2 \
        --set checkpoint.async=false --set script.layers=1 "$@"
}
step() { printf '%s/checkpoints/step-%08d' "$1" "$2"; }
names() { ls "$1/checkpoints" | grep -v '^generation-' | tr '\n' ' '; }
good() {
    local name=$1
    shift
    "$@" > "$name.log" 2>&1 || fail "$name: exit code $?: $(cat "$name.log")"
}
says() {
    local file=$1 pattern
    shift
    for pattern in "$@"; do grep -q -- "$pattern" "$file" || { cat "$file"; fail "$file lacks: $pattern"; }; done
}
has() { [ "$(names "$1")" = "$2 " ] || fail "$1 has $(names "$1"), expected $2"; }
same_as_whole() {
    losses "$1" | head -n 60 > "$1.losses"
    cmp whole.losses "$1.losses" || fail "$1: another trajectory"
}
good whole run whole 40 --set checkpoint.keep=3
cp -r whole longer && good longer run longer 60
losses longer > whole.losses

# overlaid NAME: the run of that name, all of it in the lower layer.
overlaid() {
    mountpoint -q merged && umount merged
    rm -rf layers/upper layers/work
    mkdir -p layers/upper layers/work merged
    mv "$1" layers/lower/"$1"
    mount -t overlay -o lowerdir=layers/lower,upperdir=layers/upper,workdir=layers/work overlay merged &&
        ln -sfn "merged/$1" "$1"
}
mkdir layers && mount -t tmpfs tmpfs layers 2> said && mkdir layers/lower ||
    { echo "skipped: this machine mounts no tmpfs: $(cat said)"; exit 77; }
if cp -r whole retired && overlaid retired 2> said; then
    # Retiring takes the manifest out first, then empties the folder where it is.
    good retired run retired 60
    has retired "step-00000050 step-00000060"
    ! grep -q "cannot be removed" retired.log || { cat retired.log; fail "a step of a lower layer cannot be removed"; }
    same_as_whole retired
    # A damaged newest step, and unfinished ones of two generations.
    cp -r whole damaged && spoil "$(step damaged 40)/rank-00000-000.safetensors"
    cp -r "$(step damaged 30)" "$(step damaged 50).g1.partial"
    cp -r "$(step damaged 30)" "$(step damaged 50).partial" && rm "$(step damaged 50)".*partial/manifest.json
    overlaid damaged
    good damaged run damaged 40
    says damaged.log "resumed from step 30" "its manifest is manifest.json.aside-1 now" \
        "the previous files of step 40 were set aside as .*step-00000040 (it cannot be renamed: "
    [ -f "$(step damaged 40)/manifest.json.aside-1" ] || fail "the damaged step was not kept"
    good listed "$orrery" checkpoints list damaged
    says listed.log "step-00000040 cannot be renamed, and was set aside where it is: "
    good verified "$orrery" checkpoints verify damaged
    good damaged run damaged 60
    says damaged.log "resumed from step 40"
    has damaged "step-00000040 step-00000050 step-00000060"
    same_as_whole damaged
    # An export that was killed has left its folder there.
    mkdir out out.part exports && touch out.part/.orrery-export out.part/model.safetensors && mv out out.part exports
    cp whole/config.toml exports/
    overlaid exports
    good exported "$orrery" export longer exports/out
    refused "lower layer of an overlay|choose another run.folder" run merged/exports 60 --fresh
else
    echo "skipped: this machine mounts no overlay: $(cat said)"
fi

# A step is removed, but the disk does not say that this is durable.
if strace -o /dev/null true 2> said; then
    cp -r whole unsure
    exits 1 unsure strace -f -qq -o /dev/null -e inject=fsync:error=EIO "$orrery" checkpoints prune unsure --keep 2
    says unsure.txt \
        "step 20 removed: no rule keeps it; its removal may be lost in a power failure: .*Input/output error"
    [ ! -e "$(step unsure 20)" ] || fail "unsure: step 20 is there"
    cp -r "$(step whole 20)" "$(step unsure 20)"
    exits 1 unsure strace -f -qq -o /dev/null -e inject=fsync:error=EIO \
        "$orrery" checkpoints prune unsure --keep 2 --json
    says unsure.txt '"failed": *true'
else
    echo "skipped: no strace: $(cat said)"
fi

# An immutable step is left, and named once.
cp -r whole immutable
[ -d "$(step immutable 20)" ] || fail "no step 20"
if chattr -R +i "$(step immutable 20)" 2> said; then
    good immutable run immutable 60
    [ "$(grep -c "checkpoint of step 20 cannot be removed and is left" immutable.log)" -eq 1 ] ||
        { cat immutable.log; fail "immutable: not named once"; }
    has immutable "step-00000020 step-00000050 step-00000060"
    exits 1 prune "$orrery" checkpoints prune immutable --keep 2
    says prune.txt "step 20 stays: no rule keeps it, but it cannot be removed: .*Operation not permitted"
    # The newest one is damaged, and cannot even be set aside where it is.
    cp -r whole frozen && spoil "$(step frozen 40)/rank-00000-000.safetensors"
    chattr -R +i "$(step frozen 40)"
    good frozen run frozen 40
    good frozen run frozen 60
    says frozen.log "resumed from step 40"
    has frozen "step-00000040 step-00000050 step-00000060"
    same_as_whole frozen
else
    echo "skipped: no immutable files here: $(cat said)"
fi

# flock that the mount refuses: the option is named.
if strace -o /dev/null true 2> said; then
    for refusal in "ENOSYS mount Lustre with -o flock" "EOPNOTSUPP mount Lustre with -o flock" \
        "ENOLCK local_lock=flock"; do
        exits 2 lock strace -f -qq -o /dev/null -e inject=flock:error="${refusal%% *}" "$orrery" run \
            "$source_root/scripts/gpt.lua" --config longer/config.toml
        says lock.err "cannot lock longer/.*lock: " "${refusal#* }"
    done
else
    echo "skipped: no strace: $(cat said)"
fi
