#pragma once
#include <cstdint>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// The memory that contains the copy of params and states from which asynchronous saves read.
enum class SnapshotPlace : uint8_t {
    none,    ///< saves are not asynchronous
    device,  ///< a copy in the memory of the arenas, which is host memory
    host,    ///< a copy in host memory, while the arenas are in device memory
};

/// A param or state in the snapshot that a rank copies for a save.
struct CopiedValue {
    ValueId value = none;
    int buffer = none;   ///< index of its buffer in the persistent arena
    int64_t bytes = 0;   ///< size of the rank's part of the value
    int64_t offset = 0;  ///< bytes from the start of the snapshot, a multiple of arena_alignment
    /// The first instruction of a step that writes the value; `none`: no instruction does. A copy started between two
    /// steps must finish before the next step executes this instruction.
    int written = none;
};

/// A snapshot: a copy of all params and states, made while the next step runs. Values are copied in this order; those
/// that the step writes first come first. If a device makes the copy (SnapshotPlace::host), the snapshot has the same
/// size, values are ordered by address, and the whole copy finishes before any value is written.
struct SnapshotPlan {
    std::vector<CopiedValue> values;
    int64_t bytes = 0;  ///< size of the whole snapshot
};

/// The snapshot of each class of ranks. `check_snapshots` proves that it can be copied during a step.
std::vector<SnapshotPlan> snapshots_of(const Plan& plan);

}  // namespace orrery
