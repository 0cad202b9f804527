#pragma once
#include <cstddef>
#include <fstream>
#include <string>

namespace orrery {

/// A file that gets its name once it is complete. Until then it is NAME.part, which the destructor removes.
class PartialFile {
public:
    PartialFile() = default;
    ~PartialFile();
    PartialFile(const PartialFile&) = delete;
    PartialFile& operator=(const PartialFile&) = delete;

    /// Throws Error if the file cannot be created or if the name is taken by something that is not a regular file.
    void open(const std::string& path);
    /// Throws Fault::failed if the disk is full; so do close and name.
    void write(const void* data, size_t bytes);
    /// Closes NAME.part without renaming it.
    void close();
    /// Renames it to its final name. Call once.
    void name();

    const std::string& path() const { return path_; }

private:
    std::string path_;
    std::ofstream out_;
};

}  // namespace orrery
