#pragma once
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// The param that a value is a cast, view or gathered copy of; none if there is none.
ValueId copied_param(const Program& program, ValueId value);

/// What a buffer of the scratch arena counts as in the memory report.
enum class MemoryPart { gradients, param_copies, activations, workspaces };

/// Returns the part of each buffer of the class. Besides BufferUse::gradient, gradients are sums that are cast to be
/// sent in a narrower type, and what is sent. Linear in the program's size.
std::vector<MemoryPart> memory_parts(const Plan& plan, const RankClass& c);

}  // namespace orrery
