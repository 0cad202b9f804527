#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "orrery/error.h"

namespace orrery {

/// Writes all bytes. Returns errno of a failed call, 0 on success. Allocates nothing.
int write_all(int file, std::string_view bytes);

/// Flushes a folder's entries to disk, if its file system can. Throws Error, Fault::failed.
void sync_folder(const std::string& folder);

/// A file that gets its name only once it is complete. Until then its name has a suffix, and the destructor removes it.
/// A file that replaces another one gets its mode, unless only its owner may use the new one. Functions throw Error
/// "cannot write PATH: why", Fault::failed.
class AtomicFile {
public:
    /// `suffix` of the name until the file is complete; `mode`: permissions of a new file, before the umask.
    explicit AtomicFile(std::string path, const std::string& suffix = ".part", unsigned mode = 0666)
        : path_(std::move(path)), partial_(path_ + suffix), mode_(mode) {}
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    const std::string& path() const { return path_; }
    /// Creates the file under its temporary name; replaces an earlier incomplete one. `fault`: of the Errors it throws.
    void open(Fault fault = Fault::failed);
    void write(std::string_view bytes);
    /// Closes the file. `durable`: makes its contents survive a power cut.
    void close(bool durable = false);
    /// Renames the closed file to its name. `durable`: makes the rename survive a power cut.
    void name(bool durable = false);

private:
    [[noreturn]] void fail(int code);
    void flush();

    const std::string path_, partial_;
    const unsigned mode_;
    int file_ = -1;
    bool there_ = false;
    std::string buffer_;
};

/// Writes a whole file that only this user may read, mode 0600. `fault`: of the Error if it cannot be created.
void write_private(const std::string& path, std::string_view text, Fault fault = Fault::failed);

}  // namespace orrery
