#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "target.h"

namespace orrery::fuzz {

/// An input as a regular file, in memory.
class InputFile {
public:
    explicit InputFile(std::string_view bytes) : file_(::memfd_create("fuzz", MFD_CLOEXEC)) {
        require(file_ >= 0 && ::write(file_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
                "the test can make files");
    }
    ~InputFile() { ::close(file_); }
    InputFile(const InputFile&) = delete;

    void cut(int64_t bytes) const { require(::ftruncate(file_, bytes) == 0, "the test can cut files"); }
    std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

private:
    int file_;
};

}  // namespace orrery::fuzz
