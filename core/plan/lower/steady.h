#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/lower/buffers.h"
#include "plan/lower/order.h"

namespace orrery::lowering {

/// A schedule shortened for lowering: of the `times` runs of `micros` micro-batches in its steady state, one is left.
struct Steady {
    const Schedule* whole = nullptr;
    Schedule schedule;    ///< the shortened schedule, of `written` micro-batches
    int64_t written = 0;  ///< number of micro-batches that are left
    int64_t micros = 0;   ///< number of micro-batches per run
    int64_t times = 1;
    std::vector<int> period;  ///< by rank: number of fragments per run
    std::vector<int> last;    ///< by rank: index of a fragment of `schedule` such that the run before it is steady
};

/// Finds the steady state of a schedule of `micros` micro-batches: a number q such that the order of every rank repeats
/// itself with all micro-batches increased by q. Chooses the q that removes the max number of micro-batches. Retains
/// warm-up, cool-down, and as many runs as are in flight at once, plus `more`. nullopt if nothing can be removed.
std::optional<Steady> find_steady(const Schedule& schedule, int64_t micros, int64_t more);

/// The step that made a buffer, and the buffer's micro-batch (-1: shared by all).
struct MadeBy {
    OpId op = none;
    Step::Part part = Step::Part::whole;
    int number = 0;  ///< index among the buffers made by this step
    int64_t micro = -1;
};

/// Finds the part of a class's stream that repeats. Assigns buffers that outlive a run to Frames. Call it before
/// buffers are placed and waits inserted. `made_by`: by buffer. False if the stream does not repeat like the schedule.
bool find_repeat(const Steady& steady, const std::vector<MadeBy>& made_by, RankClass& c);

}  // namespace orrery::lowering
