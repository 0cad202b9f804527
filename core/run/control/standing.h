#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery {

/// Where a rank is, as it tells the rendezvous with each heartbeat.
struct Position {
    int64_t steps = 0;  ///< steps begun, of all programs
    int index = 0;      ///< instruction of its stream
    int of = 0;         ///< instructions of its stream; 0: between two steps
    double here_s = 0;  ///< for so long
    double bound_s = 0;
    std::vector<int64_t> waits_for;  ///< ranks without which this instruction cannot end
    std::string text;                ///< op, values, script line

    /// What its part is in what others take part in, and a name for that which is the same on all of them; unknown: it
    /// ends when those that it waits for have left where they are.
    enum class Part : uint8_t { unknown, sends, receives, meets };
    Part part = Part::unknown;
    std::string meeting = {};

    /// Longer than a sound plan takes to bring the others here.
    bool late() const { return !waits_for.empty() && here_s > bound_s; }
    std::string encode() const;
    /// For Member::tell_position, which sees whether it is late.
    std::string told() const { return (late() ? "late " : "") + encode(); }
    /// An empty text is a rank that has told nothing yet.
    static Position decode(std::string_view text);
};

/// One rank as the rendezvous knows it.
struct Standing {
    int64_t rank = 0;
    Position position;
    double silent_s = 0;
    std::string process = {};  ///< "its process is stopped (SIGSTOP)", "" when it cannot be known
};

/// Why `late` waits: what ranks have told is played to its end (plan/replay), where those that compute or are silent
/// stay where they are. Then it is these that keep `late`: "rank 1 is behind, and silent for 3.2 s: its process is
/// stopped (SIGSTOP); last seen in ..."; or a cycle of ranks that wait for each other; or nobody: all are there, and
/// the transport does not end what they are in. The loss is of the rank that is behind, its site "behind",
/// "circle" or "transport". Linear in ranks and what they wait for, times those that a collective holds up.
Loss explain_wait(int64_t late, const std::vector<Standing>& all);

}  // namespace orrery
