#pragma once
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace orrery {

/// A regular file, opened to read. Never waits: a FIFO would until somebody writes, and a device may have no end.
class RegularFile {
public:
    explicit RegularFile(const std::string& path);
    ~RegularFile();
    RegularFile(const RegularFile&) = delete;
    RegularFile& operator=(const RegularFile&) = delete;

    /// "" when it is one; else "cannot be opened: No such file or directory", "is a named pipe, expected a file" ...
    const std::string& problem() const { return problem_; }
    bool there() const { return there_; }  ///< false: nothing has that name, or it may not be read
    int64_t bytes() const { return info_.st_size; }
    const struct stat& info() const { return info_; }  ///< as it was opened
    /// As it is now, also when its name is another file's by now. Throws Fault::failed.
    struct stat now() const;
    /// Fills the range from `offset` on; fewer bytes than asked for at the end of the file. Throws Fault::failed.
    size_t read(int64_t offset, void* out, size_t bytes) const;
    /// The first `most` bytes, or all where there are fewer.
    std::string text(size_t most) const;

private:
    std::string path_, problem_;
    bool there_ = false;
    int descriptor_ = -1;
    struct stat info_ {};
};

}  // namespace orrery
