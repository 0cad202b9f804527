#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/lower/buffers.h"
#include "plan/lower/order.h"

namespace orrery::lowering {

/// A schedule without the runs of its steady state that are like the first: `times` runs of `micros` micro-batches each
/// stand for one of those that are left.
struct Steady {
    const Schedule* whole = nullptr;
    Schedule schedule;    ///< of `written` micro-batches
    int64_t written = 0;  ///< micro-batches
    int64_t micros = 0;   ///< of a run
    int64_t times = 1;
    std::vector<int> period;  ///< by rank: fragments of a run
    std::vector<int> last;    ///< by rank: a fragment of `schedule` such that a whole run before it is steady
};

/// The steady state of a schedule of `micros` micro-batches: the shortest stretch that all ranks repeat, each its own,
/// with the micro-batches moved on alike. Kept are the ways in and out, as many runs as micro-batches are under way at
/// once, and `more`. nullopt: there is none, or nothing to be gained. Cost: fragments times 64.
std::optional<Steady> find_steady(const Schedule& schedule, int64_t micros, int64_t more);

/// Which step made a buffer, for one micro-batch (-1: for all).
struct MadeBy {
    OpId op = none;
    Step::Part part = Step::Part::whole;
    int number = 0;  ///< among those that the step made
    int64_t micro = -1;
};

/// Sets the Repeat of a class and puts in frames what lives from one run to the next. `made_by`: per buffer. False
/// where the stream does not repeat itself as the schedule does. Before places are given and waits inserted.
bool find_repeat(const Steady& steady, const std::vector<MadeBy>& made_by, RankClass& c);

}  // namespace orrery::lowering
