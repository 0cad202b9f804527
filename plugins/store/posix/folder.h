#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace posix_store {

/// What is called "cannot <what> <path>: <system's reason>", as Fault::failed.
[[noreturn]] void fail(const std::string& what, const std::string& path, int code);

/// Whether a rename by this process that failed so fails each time: the folder is in a lower layer of an overlay
/// (EXDEV), immutable, a mount point, not ours to rename, or on a file system that is read-only. Another user may be
/// able to.
bool refuses_for_good(int code);

/// Bytes that this user can still write where a folder lies, or is to be made; -1 when the system does not tell.
int64_t free_bytes(const std::string& path);

/// An open folder. Names are single components, and no symbolic link is followed. Calls throw through fail().
class Folder {
public:
    /// Opens, making it and its parents where they are missing; what is made is durable. Links are followed here only:
    /// where checkpoints lie is the user's choice.
    static Folder make(const std::string& path);
    /// Not open when there is no such folder.
    static Folder find(const std::string& path);
    Folder() = default;
    Folder(Folder&& other) noexcept;
    Folder& operator=(Folder&& other) noexcept;
    ~Folder();

    explicit operator bool() const { return file_ >= 0; }
    const std::string& path() const { return path_; }

    /// What a name is: 'd' a folder, '-' a file, 'l' a symbolic link, '?' anything else, ' ' when there is none.
    char kind(const std::string& name) const;
    /// A folder in this one; not open when there is none. A link or a file of that name is an error.
    Folder folder(const std::string& name) const;
    /// True when it was made, false when it was there.
    bool make_folder(const std::string& name) const;
    /// Size of a regular file, -1 when there is none.
    int64_t size(const std::string& name) const;
    /// Bytes of the disk that go with this name: 0 while the file has another, and where there is none.
    int64_t held_alone(const std::string& name) const;
    /// The user whose a file or folder is, -1 when there is none.
    int64_t owner(const std::string& name) const;
    /// Creates a file that must not exist and makes its contents durable; on failure no file is left.
    void write(const std::string& name, std::span<const std::span<const std::byte>> parts) const;
    /// Creates an empty file unless it exists.
    void touch(const std::string& name) const;
    /// Creates an empty file, durably but for its name; false when it exists.
    bool make_file(const std::string& name) const;
    /// The same contents under a name that must not exist in `to`: a hard link. False when the file system makes none,
    /// or no more of this file.
    bool link(const std::string& name, const Folder& to, const std::string& to_name) const;
    /// Whether both are the same folder of the disk.
    bool same(const Folder& other) const;
    /// The file's contents become these, whether it exists or not, whole or not at all.
    void replace(const std::string& name, std::string_view text) const;
    void read(const std::string& name, int64_t offset, std::span<std::byte> bytes) const;
    /// Makes names created, renamed and removed here durable.
    void sync() const;
    /// 0, or the system's reason: EEXIST when `to` exists already.
    int try_rename(const std::string& from, const std::string& to) const;
    /// The same: false when `to` exists already, and throws for other reasons.
    bool rename(const std::string& from, const std::string& to) const;
    void remove_file(const std::string& name) const;
    void remove_folder(const std::string& name) const;
    /// What kind of file system it lies on, as statfs says.
    int64_t file_system() const;
    /// Sorted.
    std::vector<std::string> names() const;

private:
    Folder(int file, std::string path) : file_(file), path_(std::move(path)) {}
    std::string at(const std::string& name) const { return path_ + "/" + name; }

    int file_ = -1;
    std::string path_;
};

}  // namespace posix_store
