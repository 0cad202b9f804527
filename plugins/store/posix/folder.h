#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace posix_store {

/// Throws "cannot <what> <path>: <system's reason>" as Fault::failed.
[[noreturn]] void fail(const std::string& what, const std::string& path, int code);

/// Whether a rename that failed with `code` would fail again for this user: the folder is in a lower layer of an
/// overlay (EXDEV), immutable, a mount point, without permission, or on a read-only file system.
bool refuses_for_good(int code);

/// Bytes that this user can still write in a folder, or where it would be created; -1: not known.
int64_t free_bytes(const std::string& path);

/// An open folder. Names are single path components. Symbolic links are not followed. Calls throw through fail().
class Folder {
public:
    /// Opens a folder. Creates it and its parents durably if they are missing. Follows symbolic links in `path`.
    static Folder make(const std::string& path);
    /// Opens a folder. Returns one that is not open if there is no such folder. Follows symbolic links in `path`.
    static Folder find(const std::string& path);
    Folder() = default;
    Folder(Folder&& other) noexcept;
    Folder& operator=(Folder&& other) noexcept;
    ~Folder();

    explicit operator bool() const { return file_ >= 0; }
    const std::string& path() const { return path_; }

    /// The kind of an entry: 'd' folder, '-' regular file, 'l' symbolic link, '?' anything else, ' ' no such name.
    char kind(const std::string& name) const;
    /// Opens a folder in this one. Returns one that is not open if there is no such name. Throws if it is not a folder.
    Folder folder(const std::string& name) const;
    /// Creates a folder. Returns false if the name exists.
    bool make_folder(const std::string& name) const;
    /// Size of a regular file; -1: there is none.
    int64_t size(const std::string& name) const;
    /// Bytes on disk that deleting this name would free: 0 if the file has another hard link or does not exist.
    int64_t held_alone(const std::string& name) const;
    /// The owner's user id; -1: no such name.
    int64_t owner(const std::string& name) const;
    /// Creates a file and makes its contents durable. Throws if it exists. Leaves no file on failure.
    void write(const std::string& name, std::span<const std::span<const std::byte>> parts) const;
    void touch(const std::string& name) const;
    /// Creates an empty file; its name is durable only after sync(). Returns false if the name exists.
    bool make_file(const std::string& name) const;
    /// Creates a hard link in `to`. Throws if the name exists there. Returns false if the file system has no hard
    /// links, or allows no more of this file.
    bool link(const std::string& name, const Folder& to, const std::string& to_name) const;
    /// Whether both objects are the same folder on disk.
    bool same(const Folder& other) const;
    /// Creates or replaces a file, atomically and durably.
    void replace(const std::string& name, std::string_view text) const;
    void read(const std::string& name, int64_t offset, std::span<std::byte> bytes) const;
    /// Makes names that were created, renamed or removed in this folder durable.
    void sync() const;
    /// Renames an entry, never replacing another one. Returns 0 or the error code; EEXIST: `to` exists.
    int try_rename(const std::string& from, const std::string& to) const;
    /// Renames an entry. Returns false if `to` exists. Throws for other errors.
    bool rename(const std::string& from, const std::string& to) const;
    void remove_file(const std::string& name) const;
    void remove_folder(const std::string& name) const;
    /// The type of the file system, from statfs.
    int64_t file_system() const;
    /// The names of all entries, sorted.
    std::vector<std::string> names() const;

private:
    Folder(int file, std::string path) : file_(file), path_(std::move(path)) {}
    std::string at(const std::string& name) const { return path_ + "/" + name; }

    int file_ = -1;
    std::string path_;
};

}  // namespace posix_store
