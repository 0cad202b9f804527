#include "run/metrics/appended_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/files/atomic_file.h"
#include "orrery/error.h"

namespace orrery {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& why) {
    throw Error(fmt::format("cannot write {}: {}", path, why), Fault::failed);
}

}  // namespace

AppendedFile::AppendedFile(std::string path, int flags) : path_(std::move(path)), flags_(flags) { open(); }

AppendedFile::~AppendedFile() { ::close(file_); }

void AppendedFile::open() {
    std::error_code ignored;
    if (std::filesystem::is_fifo(path_, ignored))
        fail(path_, "it is a named pipe, which would block until it has a reader\n  remove it");
    const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags_, 0644);
    const bool other = file < 0 && (errno == EISDIR || errno == ELOOP);
    if (file < 0) fail(path_, std::strerror(errno) + std::string(other ? "\n  move away what is there" : ""));
    if (file_ >= 0) ::close(file_);
    file_ = file;
}

bool AppendedFile::removed() const {
    struct stat now {};
    if (::fstat(file_, &now) != 0) return errno == ESTALE;  // removed by another host of a network file system
    return S_ISREG(now.st_mode) && now.st_nlink == 0;
}

void AppendedFile::write(std::string_view bytes) {
    if (removed()) open();
    struct stat before {};
    const bool known = ::fstat(file_, &before) == 0 && S_ISREG(before.st_mode);
    const int code = write_all(file_, bytes);
    if (code == 0) return;
    [[maybe_unused]] const int cut = known ? ::ftruncate(file_, before.st_size) : 0;  // removes an incomplete record
    fail(path_, std::strerror(code));
}

}  // namespace orrery
