#pragma once
#include "orrery/program.h"

namespace orrery::ops {

/// The op that counted the choices of `load` i32 [...,E], maybe with reshapes and collectives in between: its ids are
/// i32 [...,T,k]. nullptr: another kind of op made the counts, or they are an input.
const Op* assigned(const Program& program, ValueId load);

}  // namespace orrery::ops
