#pragma once
#include <string>
#include <string_view>

namespace orrery {

/// A file that grows by one write a record, so that a process that is killed leaves at most its last one cut.
class AppendedFile {
public:
    /// Makes it where there is none. Throws Fault::failed naming path and reason, as `write` does.
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
