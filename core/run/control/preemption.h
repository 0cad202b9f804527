#pragma once
#include <string>

#include "layout/messages/status_word.h"
#include "run/host_side.h"

namespace orrery {

/// Agrees on the step after which all ranks stop, when any of them was signalled: each says with every step whether it
/// was when that step began, and all find the same sum in its results. Asks nobody else.
class StopVote {
public:
    explicit StopVote(int64_t ranks) : ranks_(ranks) {}

    /// What this rank says in the step that begins.
    Status mine() const;
    /// True when the run ends after the step that has left these results; a rank that is alone looks for itself.
    bool ends(const HostResults& results) const;
    /// "stopped by signal 15", for the message.
    std::string reason() const;

private:
    const int64_t ranks_;
};

}  // namespace orrery
