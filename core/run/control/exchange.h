#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "run/control/rendezvous.h"

namespace orrery {

/// How long to wait for a rank that is alive.
enum class WaitLimit : uint8_t {
    step,   ///< the job's timeout, and a step's bound once that is known: everyone computes the same
    files,  ///< an hour: it writes or reads files, which may take any time; a lost rank ends the wait at once
};

/// Rounds in which all ranks tell each other texts of up to 64 MiB, through the store. Every rank takes part in the
/// same rounds in the same order. A round's texts are erased after the next `all`, so the store does not grow.
class Exchange {
public:
    /// `name` is this exchange's own within the job.
    Exchange(TcpRendezvous& rendezvous, std::string name, int64_t rank, int64_t ranks,
             std::chrono::milliseconds timeout);

    /// Another timeout from now on, and the key of the configuration that sets it, for messages.
    void wait_for(std::chrono::milliseconds timeout, std::string setting) {
        timeout_ = timeout;
        setting_ = std::move(setting);
    }
    /// Every rank's text in rank order. Throws Fault::peer naming a rank that does not come or is lost.
    std::vector<std::string> all(const std::string& topic, const std::string& mine, WaitLimit limit);
    /// The same on rank 0; the others give their text, do not wait, and get nothing.
    std::vector<std::string> to_first(const std::string& topic, const std::string& mine, WaitLimit limit);

private:
    std::string give(const std::string& topic, const std::string& mine);
    std::string take(const std::string& round, int64_t rank, WaitLimit limit);
    std::string wait(const std::string& key, const std::string& what, int64_t rank, WaitLimit limit);

    TcpRendezvous& rendezvous_;
    std::string name_;
    int64_t rank_, ranks_;
    std::chrono::milliseconds timeout_;
    std::string setting_ = "run.join_timeout_s";
    int64_t rounds_ = 0;
    std::vector<std::string> given_;  ///< keys of this rank that are not erased yet
};

}  // namespace orrery
