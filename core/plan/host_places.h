#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// Results of a step up to this many bytes are copied to the host after every step. Larger ones are read on request.
constexpr int64_t small_result_bytes = 4096;

/// A block of inputs or results in the persistent arena, which the host copies as a whole to or from a rank.
struct HostPlaces {
    int64_t begin = 0;  ///< bytes from the start of the arena
    int64_t bytes = 0;  ///< size of the block; 0: nothing to copy
    struct Place {
        ValueId value = none;
        int64_t offset = 0;  ///< bytes from the start of the block
    };
    std::vector<Place> places;

    /// The offset of a value in bytes from the start of the block; nullopt if the value is not in it.
    std::optional<int64_t> offset(ValueId value) const;
};

/// The block of the program's inputs on the ranks of a class. Throws Error if another value is between them.
HostPlaces host_inputs(const Program& program, const RankClass& ranks);
/// The block of results of up to `most` bytes each that are not also params, states or inputs.
HostPlaces host_results(const Program& program, const RankClass& ranks, int64_t most = small_result_bytes);

}  // namespace orrery
