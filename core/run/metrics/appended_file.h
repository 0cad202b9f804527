#pragma once
#include <string>
#include <string_view>

namespace orrery {

/// A file that grows by one write(2) per record: a killed process leaves at most its last record incomplete.
class AppendedFile {
public:
    /// Opens the file for appending, creating it if needed. `flags`: additional flags of open(2). The constructor and
    /// write() throw Fault::failed naming path and reason.
    explicit AppendedFile(std::string path, int flags = 0);
    ~AppendedFile();
    AppendedFile(const AppendedFile&) = delete;

    const std::string& path() const { return path_; }
    /// Appends all bytes or, on an error, none. Allocates no memory.
    void write(std::string_view bytes);

private:
    const std::string path_;
    int file_;
};

}  // namespace orrery
