#pragma once
#include "lua/record/tape.h"

namespace orrery::lua {

/// All numbers of the lists, ascending.
std::vector<double> union_of(const Capacities& lists);

/// Throws Error if o.capacity was given a list and o.overflow was not, or a value has the name of a load without being
/// one. `origin`: the line of o.trace.
void require_overflow(const Tape& tape, const Origin& origin);

/// Throws Error if the script has named a value as o.overflow names loads.
void refuse_named_load(const Tape& tape);

/// Adds the overflows that o.overflow has recorded, at the start of an optimizer's tape, and makes them the results
/// overflow_name and below_name. Returns the first one, f32[], above 0 if the step overflows; none if there is none.
ValueId sum_overflow(Tape& tape, const Origin& origin);

/// Adds the functions capacity and overflow to the table on the stack.
void open_capacity(lua_State* L);

}  // namespace orrery::lua
