#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// Clock, files and entropy for control-plane code (rendezvous, launcher, checkpoints, heartbeats), so that tests can
/// use virtual time and inject faults. Kernels and vendor transports do not use it. File functions throw Fault::failed
/// naming the path and the system's reason.
class Env {
public:
    using Nanoseconds = std::chrono::nanoseconds;
    virtual ~Env();

    /// Monotonic time; only differences are meaningful.
    virtual Nanoseconds now() = 0;
    /// Wall-clock time since 1970, UTC.
    virtual Nanoseconds wall_clock() = 0;
    virtual void sleep(Nanoseconds duration) = 0;
    /// Returns cryptographically random bytes, for keys and tokens.
    virtual std::string random_bytes(size_t count) = 0;

    virtual std::string read_file(const std::string& path) = 0;
    /// Replaces a file's contents atomically: the file has the old or the new contents, also after a power cut. An
    /// existing file keeps its mode.
    virtual void replace_file(const std::string& path, std::string_view contents) = 0;
    virtual void append_file(const std::string& path, std::string_view contents) = 0;
    virtual bool exists(const std::string& path) = 0;
    virtual void make_folders(const std::string& path) = 0;
    /// Returns the sorted names in a folder, without "." and "..".
    virtual std::vector<std::string> list(const std::string& path) = 0;
};

std::unique_ptr<Env> system_env();

}  // namespace orrery
