#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"

namespace orrery {

/// A rank's position in its plan, sent to the rendezvous with each heartbeat.
struct Position {
    int64_t steps = 0;  ///< number of steps begun, of all programs
    int index = 0;
    int of = 0;         ///< number of instructions in the step's stream; 0: between two steps
    double here_s = 0;  ///< seconds since the rank reached this position
    double bound_s = 0;
    std::vector<int64_t> waits_for;  ///< ranks without which this instruction cannot end
    std::string text;                ///< the instruction's op, values and script line

    /// `part`: this rank's role in the operation that it waits in; unknown: the operation ends once the ranks in
    /// `waits_for` continue. `meeting`: name of the operation, the same on all its ranks.
    enum class Part : uint8_t { unknown, sends, receives, meets };
    Part part = Part::unknown;
    std::string meeting = {};

    /// Whether the rank has waited longer than other ranks need to arrive in a valid plan (`bound_s`).
    bool late() const { return !waits_for.empty() && here_s > bound_s; }
    std::string encode() const;
    /// The text for Member::tell_position: that of encode(), after "late " if the rank waits too long.
    std::string told() const { return (late() ? "late " : "") + encode(); }
    /// Parses the text of encode(); an empty text gives the position of a rank that has reported nothing yet.
    static Position decode(std::string_view text);
};

/// A rank's position and state, as the rendezvous service knows them.
struct Standing {
    int64_t rank = 0;
    Position position;
    double silent_s = 0;
    std::string process = {};  ///< state of its process: "its process is stopped (SIGSTOP)"; "" if unknown
};

/// Explains why rank `late` waits. Replays the reported positions to their end (plan/replay); ranks that compute or are
/// silent stay in place. Loss::site is one of three causes. "behind": such a rank, "rank 1 is behind, and silent for
/// 3.2 s: its process is stopped (SIGSTOP); last seen in ..."; "circle": a cycle of ranks that wait for each other;
/// "transport": all ranks have arrived. Time is linear in the ranks and their waits, times the number of ranks that a
/// collective blocks.
Loss explain_wait(int64_t late, const std::vector<Standing>& all);

}  // namespace orrery
