#pragma once
#include <csignal>
#include <cstdint>
#include <string>

#include "run/session.h"

namespace orrery {

/// Catches SIGTERM, SIGUSR1, SIGINT and SIGHUP while a run lasts, but leaves ignored what is ignored: SIGHUP under
/// nohup, and both of the terminal's in ranks of `orrery run`, whose launcher forwards them as SIGTERM. A second SIGINT
/// ends the process at once.
class SignalWatch {
public:
    SignalWatch();
    ~SignalWatch();
    SignalWatch(const SignalWatch&) = delete;

private:
    static constexpr int caught[4] = {SIGTERM, SIGUSR1, SIGINT, SIGHUP};
    struct sigaction before_[4];
};

/// Agrees on the step after which all ranks stop, when any of them was signalled. A signalled rank says so in the
/// store. Rank 0 then names a step two ahead, and no rank can pass that one without rank 0 having taken part in it;
/// all ask the store once a step.
class StopVote {
public:
    explicit StopVote(Session& session);

    /// True when the run ends after this step. Collective.
    bool after(int64_t step);
    /// "stopped by signal 15", for the message.
    std::string reason() const;

private:
    Session& session_;
    std::string key_;
    bool asked_ = false, named_ = false;
};

}  // namespace orrery
