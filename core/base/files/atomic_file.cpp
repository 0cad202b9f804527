#include "base/files/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace orrery {
namespace {

constexpr size_t buffer_bytes = 1 << 16;

Error cannot_write(const std::string& path, int code, Fault fault = Fault::failed) {
    return Error("cannot write " + path + ": " + std::generic_category().message(code), fault);
}

}  // namespace

int write_all(int file, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t done = ::write(file, bytes.data(), bytes.size());
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        bytes.remove_prefix(static_cast<size_t>(done));
    }
    return 0;
}

void sync_folder(const std::string& folder) {
    const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int code = file < 0 || ::fsync(file) != 0 ? errno : 0;
    if (file >= 0) ::close(file);
    if (code != 0 && code != EINVAL)  // EINVAL: the file system cannot fsync a folder
        throw Error("cannot flush the folder " + folder + ": " + std::generic_category().message(code), Fault::failed);
}

AtomicFile::~AtomicFile() {
    if (file_ >= 0) ::close(file_);
    if (there_) ::unlink(partial_.c_str());
}

void AtomicFile::fail(int code) {
    if (std::exchange(there_, false)) ::unlink(partial_.c_str());
    throw cannot_write(path_, code);
}

void AtomicFile::open(Fault fault) {
    if (file_ >= 0) ::close(file_);
    ::unlink(partial_.c_str());  // removes the file that a killed process may have left
    buffer_.clear();
    buffer_.reserve(buffer_bytes);  // reserves memory, so that replacing a file again does not allocate
    file_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode_);
    if (file_ < 0) throw cannot_write(errno == EEXIST ? partial_ : path_, errno, fault);
    there_ = true;
    struct stat old {};
    const bool secret = (mode_ & 077) == 0;  // another user may have made the file, to be able to read its successor
    if (!secret && ::stat(path_.c_str(), &old) == 0) (void)::fchmod(file_, old.st_mode & 0777);
}

void AtomicFile::flush() {
    const int code = write_all(file_, buffer_);
    buffer_.clear();
    if (code != 0) fail(code);
}

void AtomicFile::write(std::string_view bytes) {
    if (buffer_.size() + bytes.size() > buffer_bytes) flush();
    if (bytes.size() < buffer_bytes)
        buffer_.append(bytes);
    else if (const int code = write_all(file_, bytes))
        fail(code);
}

void AtomicFile::close(bool durable) {
    flush();
    if (durable && ::fsync(file_) != 0) fail(errno);
    // NFS and quotas report a full disk only at close.
    if (::close(std::exchange(file_, -1)) != 0 && errno != EINTR) fail(errno);
}

void AtomicFile::name(bool durable) {
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail(errno);
    there_ = false;
    if (!durable) return;
    const std::string parent = std::filesystem::path(path_).parent_path();
    sync_folder(parent.empty() ? "." : parent);
}

void write_private(const std::string& path, std::string_view text, Fault fault) {
    AtomicFile file(path, ".part", 0600);
    file.open(fault);
    file.write(text);
    file.close();
    file.name();
}

}  // namespace orrery
