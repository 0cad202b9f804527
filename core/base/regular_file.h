#pragma once
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace orrery {

/// A regular file opened for reading. Opening never blocks, as a FIFO without a writer would, and refuses devices.
class RegularFile {
public:
    explicit RegularFile(const std::string& path);
    ~RegularFile();
    RegularFile(const RegularFile&) = delete;
    RegularFile& operator=(const RegularFile&) = delete;

    /// Why the file is not open: "cannot be opened: No such file or directory", "is a named pipe, expected a file" ...;
    /// "" if it is open.
    const std::string& problem() const { return problem_; }
    bool there() const { return there_; }  ///< whether the path exists and is readable
    int64_t bytes() const { return info_.st_size; }
    const struct stat& info() const { return info_; }  ///< size, mode and times of the file when it was opened
    /// Size, mode and times of the open file now, even if its name now belongs to another file. Throws Fault::failed.
    struct stat now() const;
    /// Reads from `offset`; returns fewer bytes than requested only at the end of the file. Throws Fault::failed.
    size_t read(int64_t offset, void* out, size_t bytes) const;
    /// Returns the first `most` bytes, or the whole file if it is shorter.
    std::string text(size_t most) const;

private:
    std::string path_, problem_;
    bool there_ = false;
    int descriptor_ = -1;
    struct stat info_ {};
};

}  // namespace orrery
