#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "orrery/error.h"

namespace orrery {

/// Writes all bytes. Returns errno of the call that failed, 0: none did. Allocates nothing.
int write_all(int file, std::string_view bytes);

/// Makes the names in a folder durable, where its file system can. Throws Error, Fault::failed.
void sync_folder(const std::string& folder);

/// A file that gets its name when it is whole. Until then its name has a suffix, and this object removes it. The mode
/// of a file that it replaces stays. Calls throw Error "cannot write PATH: why", Fault::failed.
class AtomicFile {
public:
    explicit AtomicFile(std::string path, const std::string& suffix = ".part")
        : path_(std::move(path)), partial_(path_ + suffix) {}
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    const std::string& path() const { return path_; }
    /// Begins a file in place of one that was begun before. `fault`: of its error.
    void open(Fault fault = Fault::failed);
    void write(std::string_view bytes);
    /// `durable`: the contents survive a power cut.
    void close(bool durable = false);
    /// Gives the closed file its name. `durable`: the name survives a power cut.
    void name(bool durable = false);

private:
    [[noreturn]] void fail(int code, Fault fault = Fault::failed);
    void flush();

    const std::string path_, partial_;
    int file_ = -1;
    bool there_ = false;
    std::string buffer_;
};

}  // namespace orrery
