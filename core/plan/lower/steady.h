#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/lower/buffers.h"
#include "plan/lower/order.h"

namespace orrery::lowering {

/// A shortened schedule: of the `times` runs of `micros` micro-batches in its steady state, one is left.
struct Steady {
    const Schedule* whole = nullptr;
    Schedule schedule;  ///< the shortened schedule, of `written` micro-batches
    int64_t written = 0;
    int64_t micros = 0;  ///< number of micro-batches per run
    int64_t times = 1;
    std::vector<int> period;  ///< by pipeline rank: number of fragments per run
    std::vector<int> last;    ///< by pipeline rank: index of a fragment after a steady run
};

/// Finds a number q such that the order of every rank repeats with all micro-batches increased by q, and leaves out
/// those repetitions. Chooses the q that leaves out the max number of micro-batches. Retains warm-up, cool-down, and as
/// many runs as are in flight at once, plus `more`. nullopt if nothing can be left out.
std::optional<Steady> find_steady(const Schedule& schedule, int64_t micros, int64_t more);

/// The step that made a buffer, and the micro-batch that the buffer belongs to (-1: to all).
struct MadeBy {
    OpId op = none;
    Step::Part part = Step::Part::whole;
    int number = 0;  ///< index among the buffers that the step made
    int64_t micro = -1;
};

/// Finds the part of a class's stream that repeats, and assigns buffers that outlive a run to Frames. Call it before
/// buffers are placed and waits inserted. `made_by`: by buffer. False if the stream does not repeat.
bool find_repeat(const Steady& steady, const std::vector<MadeBy>& made_by, RankClass& c);

}  // namespace orrery::lowering
