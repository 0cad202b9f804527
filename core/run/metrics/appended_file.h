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
    /// Appends all bytes or, on an error, none. A file that was removed is created again. Allocates nothing.
    void write(std::string_view bytes);
    /// Whether the open file has lost its name, so that what was written to it is gone.
    bool removed() const;

private:
    void open();

    const std::string path_;
    const int flags_;
    int file_ = -1;
};

}  // namespace orrery
