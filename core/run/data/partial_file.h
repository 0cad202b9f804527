#pragma once
#include <cstddef>
#include <fstream>
#include <string>

namespace orrery {

/// A file that gets its name when it is whole. Until then it is NAME.part, which goes with this.
class PartialFile {
public:
    PartialFile() = default;
    ~PartialFile();
    PartialFile(const PartialFile&) = delete;
    PartialFile& operator=(const PartialFile&) = delete;

    /// Throws Error where it cannot be made, or where what has the name is no file.
    void open(const std::string& path);
    /// Throws Fault::failed where the disk is full, as those below.
    void write(const void* data, size_t bytes);
    /// All is on its way to the disk, without the name.
    void close();
    /// Gives it its name. Once.
    void name();

    const std::string& path() const { return path_; }

private:
    std::string path_;
    std::ofstream out_;
};

}  // namespace orrery
