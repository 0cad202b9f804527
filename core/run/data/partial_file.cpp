#include "run/data/partial_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/regular_file.h"
#include "orrery/error.h"

namespace orrery {
namespace {

std::string partial(const std::string& path) { return path + ".part"; }

Error cannot_write(const std::string& path, Fault fault) {
    return Error(
        fmt::format("cannot write token file {}: {}", path, errno == 0 ? "unknown reason" : std::strerror(errno)),
        fault);
}

}  // namespace

PartialFile::~PartialFile() {
    if (!path_.empty()) ::unlink(partial(path_).c_str());  // fails without effect once renamed
}

void PartialFile::open(const std::string& path) {
    if (const RegularFile there(path); there.there() && !there.problem().empty())
        throw Error(fmt::format("token file {} {}", path, there.problem()));
    errno = 0;
    out_.open(partial(path), std::ios::binary | std::ios::trunc);
    if (!out_) throw cannot_write(path, Fault::usage);
    path_ = path;
}

void PartialFile::write(const void* data, size_t bytes) {
    errno = 0;
    out_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    if (!out_) throw cannot_write(path_, Fault::failed);
}

void PartialFile::close() {
    errno = 0;
    out_.close();
    if (!out_) throw cannot_write(path_, Fault::failed);
}

void PartialFile::name() {
    if (::rename(partial(path_).c_str(), path_.c_str()) != 0) throw cannot_write(path_, Fault::failed);
}

}  // namespace orrery
