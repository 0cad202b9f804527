#pragma once
#include <lua.hpp>

#include "orrery/program.h"
#include "orrery/schedule.h"

namespace orrery::lua {

/// Calls the function of a pipeline's schedule, (ranks, micro-batches, chunks) -> orders [, stages]. It is looked up as
/// NAME.lua beside the script, then in orrery/schedules. An order is a text, "F0 F1 B0", or a list of such, one a rank;
/// `stages` lists each rank's stages by chunk. A file may return { chunks = , order = function } instead: it needs that
/// many chunks. Chunks of 0 become those, or 1. Throws Error at the function's line where it returns something else.
Schedule make_schedule(lua_State* L, Pipeline& pipeline, int64_t ranks, int64_t microbatches);

/// The chunks that a schedule over an axis of the mesh needs; 1 where any number will do, the axis has one rank, or
/// there is no such schedule.
int chunks_needed(lua_State* L, const std::string& schedule, const std::string& axis);

}  // namespace orrery::lua
