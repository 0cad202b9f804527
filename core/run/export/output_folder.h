#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace orrery {

/// Creates a folder that appears complete or not at all. It is written as FOLDER.part, which the destructor removes
/// unless finish() was called. A FOLDER.part that a killed process left, recognised by its free lock, is removed and
/// created again, since on an overlay file system a folder from a lower layer cannot be renamed.
class OutputFolder {
public:
    /// Creates the folders that contain FOLDER. Throws Error if FOLDER exists and is not empty, if FOLDER.part belongs
    /// to a running export or was not made by an export, or if it cannot be created.
    explicit OutputFolder(std::string folder);
    ~OutputFolder();
    OutputFolder(const OutputFolder&) = delete;

    /// Path of a file of the folder while the folder is being written.
    std::string path(const std::string& name) const { return part_ + "/" + name; }
    /// Throws Error, Fault::failed, if the disk has less than `bytes` of free space.
    void require_room(int64_t bytes) const;
    /// Writes a whole file of the folder. Throws Error, Fault::failed.
    void write(const std::string& name, std::string_view contents) const;
    /// Flushes the folder and renames it to FOLDER, which survives a power cut. Throws Error, Fault::failed.
    void finish();

private:
    bool take(bool& renew);
    void clear() const;

    std::string folder_, part_, lock_path_;
    int lock_ = -1;
    bool made_ = false;
};

/// A new file that is written at any offset and read back. Throws Error, Fault::failed, naming the file, its size and
/// the system's reason.
class OutputFile {
public:
    /// `bytes`: the file's final size in bytes, for messages.
    OutputFile(std::string path, int64_t bytes);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;

    void write(int64_t offset, std::span<const std::byte> bytes) const;
    /// Starts writing a range of the file from memory to disk, without waiting.
    void send(int64_t offset, int64_t bytes) const;
    /// Flushes the file to disk.
    void settle() const;
    void read(int64_t offset, std::span<std::byte> bytes) const;

private:
    std::string path_;
    int64_t bytes_;
    int file_ = -1;
};

}  // namespace orrery
