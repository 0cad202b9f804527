#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace orrery {

/// A folder that is there whole or not at all: made as FOLDER.part, which goes when this does, unless it was finished.
/// One that a killed process has left, which is not locked any more, is removed and made again: in a lower layer of an
/// overlay it could not be renamed.
class OutputFolder {
public:
    /// Throws Error where FOLDER is there and not empty, FOLDER.part is another export's that runs, or
    /// no export's, or it cannot be made.
    explicit OutputFolder(std::string folder);
    ~OutputFolder();
    OutputFolder(const OutputFolder&) = delete;

    /// Where a file of it lies for now.
    std::string path(const std::string& name) const { return part_ + "/" + name; }
    /// Throws Error, Fault::failed, where the disk has less room than this.
    void require_room(int64_t bytes) const;
    /// A whole file. Throws Error, Fault::failed.
    void write(const std::string& name, std::string_view contents) const;
    /// Gives it its name, over power cuts. Throws Error, Fault::failed.
    void finish();

private:
    bool take(bool& renew);
    void clear() const;
    [[noreturn]] void refuse_to_make(int code) const;

    std::string folder_, part_, lock_path_;
    int lock_ = -1;
    bool made_ = false;
};

/// A new file that is written at any place and read again. Throws Error, Fault::failed, naming the file, its size and
/// the system's reason.
class OutputFile {
public:
    /// `bytes`: how many it will have, for messages.
    OutputFile(std::string path, int64_t bytes);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;

    void write(int64_t offset, std::span<const std::byte> bytes) const;
    /// Begins to send a range to the disk.
    void send(int64_t offset, int64_t bytes) const;
    /// All of it, over power cuts.
    void settle() const;
    void read(int64_t offset, std::span<std::byte> bytes) const;

private:
    std::string path_;
    int64_t bytes_;
    int file_ = -1;
};

}  // namespace orrery
