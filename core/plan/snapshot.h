#pragma once
#include <cstdint>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// Where the copy lies that saves beside the steps are made of.
enum class SnapshotPlace : uint8_t {
    none,    ///< there are no such saves
    device,  ///< in the memory that the arenas are in, which is the host's
    host,    ///< in another one
};

/// A param or state of the ranks of a class, as a snapshot of it is copied.
struct CopiedValue {
    ValueId value = none;
    int buffer = none;   ///< where it lies, in the persistent arena
    int64_t bytes = 0;   ///< of the local part
    int64_t offset = 0;  ///< in the snapshot, a multiple of arena_alignment
    /// The first instruction of a step that writes it; none: no step does. A copy that is begun when a step has ended
    /// must be done before the next one issues that.
    int written = none;
};

/// A copy of all params and states that may be made beside the next step, value by value in this order: those that a
/// step writes first come first. Where a device copies (SnapshotPlace::host) all lies by address, in as many bytes, and
/// all is copied before any of it is written.
struct SnapshotPlan {
    std::vector<CopiedValue> values;
    int64_t bytes = 0;  ///< of the snapshot
};

/// By class. `check_snapshots` proves them.
std::vector<SnapshotPlan> snapshots_of(const Plan& plan);

}  // namespace orrery
