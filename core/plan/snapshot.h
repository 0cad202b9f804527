#pragma once
#include <cstdint>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// Where asynchronous saves have the copy of params and states that they read.
enum class SnapshotPlace : uint8_t {
    none,    ///< saves are not asynchronous
    device,  ///< in the memory of the arenas, which is host memory
    host,    ///< in host memory; the arenas are in device memory
};

/// A param or state and its copy in the snapshot.
struct CopiedValue {
    ValueId value = none;
    int buffer = none;   ///< index of its buffer in the persistent arena
    int64_t bytes = 0;   ///< size of the rank's part of the value
    int64_t offset = 0;  ///< bytes from the start of the snapshot, a multiple of arena_alignment
    /// The first instruction of a step that writes the value, which must not run before the copy is made; `none`: no
    /// instruction writes it.
    int written = none;
};

/// A copy of all params and states, made while the next step runs. Values are copied in the order in which the step
/// writes them. If a device makes the copy (SnapshotPlace::host), values are in order of address, and the whole copy
/// finishes before any value is written.
struct SnapshotPlan {
    std::vector<CopiedValue> values;
    int64_t bytes = 0;
};

/// The snapshot of each class of ranks. `check_snapshots` proves that it can be copied during a step.
std::vector<SnapshotPlan> snapshots_of(const Plan& plan);

}  // namespace orrery
