#pragma once
#include <cstdint>
#include <string>

#include "run/session.h"

namespace orrery {

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
