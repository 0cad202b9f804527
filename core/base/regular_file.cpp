#include "base/regular_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "orrery/error.h"

namespace orrery {
namespace {

std::string kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a named pipe";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

}  // namespace

RegularFile::RegularFile(const std::string& path) : path_(path) {
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor_ < 0 || ::fstat(descriptor_, &info_) != 0) {
        const int code = errno;
        if (::stat(path.c_str(), &info_) == 0 && !S_ISREG(info_.st_mode))
            there_ = true;  // a socket, which exists but cannot be opened
        else
            problem_ = "cannot be opened: " + std::generic_category().message(code);
    } else {
        there_ = true;
    }
    if (there_ && !S_ISREG(info_.st_mode)) problem_ = "is " + kind_of(info_.st_mode) + ", expected a file";
    if (!problem_.empty() && descriptor_ >= 0) {
        ::close(descriptor_);
        descriptor_ = -1;
    }
}

RegularFile::~RegularFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

struct stat RegularFile::now() const {
    struct stat info {};
    if (::fstat(descriptor_, &info) != 0)
        throw Error("cannot look at " + path_ + ": " + std::generic_category().message(errno), Fault::failed);
    return info;
}

size_t RegularFile::read(int64_t offset, void* out, size_t bytes) const {
    size_t done = 0;
    while (done < bytes) {
        const ssize_t got = ::pread(descriptor_, static_cast<char*>(out) + done, bytes - done,
                                    static_cast<off_t>(offset) + static_cast<off_t>(done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw Error("cannot read " + path_ + ": " + std::generic_category().message(errno), Fault::failed);
        if (got == 0) break;
        done += static_cast<size_t>(got);
    }
    return done;
}

std::string RegularFile::text(size_t most) const {
    std::string out;
    while (out.size() < most) {  // reads to the end, since the file may grow, and files in /proc have size 0
        const size_t had = out.size(), left = most - had;
        const size_t asked = std::min(left, std::max<size_t>(1 << 16, static_cast<size_t>(bytes()) + 1));
        out.resize(had + asked);
        const size_t got = read(static_cast<int64_t>(had), out.data() + had, asked);
        out.resize(had + got);
        if (got < asked) break;
    }
    return out;
}

}  // namespace orrery
