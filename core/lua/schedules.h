#pragma once
#include <lua.hpp>

#include "orrery/program.h"
#include "orrery/schedule.h"

namespace orrery::lua {

/// Returns the schedule that a Lua function makes for a pipeline: (ranks, micro-batches, chunks) -> orders [, stages].
/// The function is in NAME.lua in the script's folder, else in orrery/schedules. Each rank's order is a text, "F0 F1
/// B0", or a list of texts; `stages` lists each rank's stages by chunk. A file that works for only one number of chunks
/// returns { chunks = , order = function }, one that needs a minimum { min_chunks = , order = function }. If the
/// pipeline's chunks are 0, sets them to that number, or to 1. Throws Error at the function's line for a number of
/// chunks that the schedule does not work with, and when the function returns something else.
Schedule make_schedule(lua_State* L, Pipeline& pipeline, int64_t ranks, int64_t microbatches);

/// Returns the min number of chunks (stages per rank) of a schedule over a mesh axis. Returns 1 if the schedule
/// works with any number, if the axis has one rank, or if there is no such schedule.
int chunks_needed(lua_State* L, const std::string& schedule, const std::string& axis);

}  // namespace orrery::lua
