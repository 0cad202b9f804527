#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// Clock, files and entropy of control-plane code (rendezvous, launcher, checkpoints, heartbeats), so that a test can
/// drive it with virtual time and injected faults. Kernels and vendor transports do not use it.
/// File calls throw Fault::failed naming the path and the system's reason.
class Env {
public:
    using Nanoseconds = std::chrono::nanoseconds;
    virtual ~Env();

    /// Monotonic; only differences mean anything.
    virtual Nanoseconds now() = 0;
    /// Since 1970, UTC.
    virtual Nanoseconds wall_clock() = 0;
    virtual void sleep(Nanoseconds duration) = 0;
    /// Bytes fit for keys and tokens.
    virtual std::string random_bytes(size_t count) = 0;

    virtual std::string read_file(const std::string& path) = 0;
    /// The file has the old or the new contents, never a mixture, also after a power cut. Its mode stays as it was.
    virtual void replace_file(const std::string& path, std::string_view contents) = 0;
    virtual void append_file(const std::string& path, std::string_view contents) = 0;
    virtual bool exists(const std::string& path) = 0;
    virtual void make_folders(const std::string& path) = 0;
    /// Names in a folder, sorted, without "." and "..".
    virtual std::vector<std::string> list(const std::string& path) = 0;
};

/// The machine's own clock, files and entropy.
std::unique_ptr<Env> system_env();

}  // namespace orrery
