# Shared by lower_layers.sh and retained.sh: file systems to try, each in an image of its own. Sourced, not run.
[ "$(id -u)" -eq 0 ] || { echo "skipped: it needs root to mount file systems"; exit 77; }
work=$(mktemp -d)
disk=$work/disk run=$work/run
mkdir "$disk" "$run"
leave() {
    { chattr -R -i "$disk"; umount -l "$run"; umount -l "$disk"; } > /dev/null 2>&1 || true
    rm -rf "$work"
}
trap leave EXIT
# mount_disk SYSTEM: an empty one at $disk. overlay: tmpfs, overlay_ext4: ext4, for its layers.
mount_disk() {
    local kind=${1#overlay_}
    rm -f "$work/image"
    case $kind in
    overlay | tmpfs) mount -t tmpfs tmpfs "$disk" ;;
    *) truncate -s 400M "$work/image" && "mkfs.$kind" -q "$work/image" && mount -o loop "$work/image" "$disk" ;;
    esac
}
