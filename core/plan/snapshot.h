#pragma once
#include <cstdint>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// The memory of the copy from which asynchronous saves read.
enum class SnapshotPlace : uint8_t {
    none,    ///< saves are not asynchronous
    device,  ///< the memory of the arenas, which is host memory
    host,    ///< host memory, while the arenas are in device memory
};

/// A param or state in a snapshot of a rank.
struct CopiedValue {
    ValueId value = none;
    int buffer = none;   ///< its place in the persistent arena
    int64_t bytes = 0;   ///< size of the local part
    int64_t offset = 0;  ///< bytes from the start of the snapshot, a multiple of arena_alignment
    /// First instruction of a step that writes the value; `none`: never written. A copy started between two steps must
    /// finish before the next step executes this instruction.
    int written = none;
};

/// A copy of all params and states that may be made during the next step. The values are copied in this order, those
/// that the step writes first coming first. If a device copies (SnapshotPlace::host), the snapshot has the same size,
/// values are ordered by address, and the whole copy finishes before any value is written.
struct SnapshotPlan {
    std::vector<CopiedValue> values;
    int64_t bytes = 0;  ///< size of the snapshot
};

/// The snapshot of each class. `check_snapshots` proves them.
std::vector<SnapshotPlan> snapshots_of(const Plan& plan);

}  // namespace orrery
