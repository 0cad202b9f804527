#pragma once
#include <string>
#include <string_view>

namespace orrery {

/// A file that grows by one write(2) per record: a killed process leaves at most its last record incomplete.
class AppendedFile {
public:
    /// Creates the file if needed. Throws Fault::failed naming path and reason; `write` does, too.
    explicit AppendedFile(std::string path);
    ~AppendedFile();
    AppendedFile(const AppendedFile&) = delete;

    const std::string& path() const { return path_; }
    /// Allocates nothing.
    void write(std::string_view bytes);

private:
    const std::string path_;
    int file_;
};

}  // namespace orrery
