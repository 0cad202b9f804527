#pragma once
#include "orrery/plan.h"

namespace orrery::lowering {

/// Sets `waits` of every instruction: a read waits for the last write of those bytes, a write for the last write and
/// the reads since, where these are on another queue. What an earlier wait already implies is left out.
void insert_waits(RankClass& rank_class);

}  // namespace orrery::lowering
