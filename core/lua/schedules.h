#pragma once
#include <lua.hpp>

#include "orrery/program.h"
#include "orrery/schedule.h"

namespace orrery::lua {

/// Calls the function of a pipeline's schedule, (ranks, micro-batches, chunks) -> orders [, stages]. The function is in
/// NAME.lua in the script's folder, else in orrery/schedules. Each rank's order is a text, "F0 F1 B0", or a list of
/// texts; `stages` lists each rank's stages by chunk. A file that works for one number of chunks only returns { chunks
/// = , order = function }. A pipeline's chunks of 0 are set to that number, or to 1. Throws Error at the function's
/// line when it returns something else.
Schedule make_schedule(lua_State* L, Pipeline& pipeline, int64_t ranks, int64_t microbatches);

/// Returns the number of chunks that a schedule over an axis of the mesh needs. Returns 1 when any number works, when
/// the axis has one rank, or when there is no such schedule.
int chunks_needed(lua_State* L, const std::string& schedule, const std::string& axis);

}  // namespace orrery::lua
