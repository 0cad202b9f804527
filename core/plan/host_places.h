#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// Results up to this size (1,024 f32) are copied to the host after every step. Larger ones are read on request.
constexpr int64_t small_result_bytes = 4096;

/// A block of the persistent arena that the host copies as a whole, to or from the ranks of a class.
struct HostPlaces {
    int64_t begin = 0;  ///< bytes from the start of the arena
    int64_t bytes = 0;  ///< 0: nothing to copy
    struct Place {
        ValueId value = none;
        int64_t offset = 0;  ///< bytes from `begin`
    };
    std::vector<Place> places;

    /// The offset of a value in bytes from `begin`; nullopt if the value is not in this block.
    std::optional<int64_t> offset(ValueId value) const;
};

/// The block of the inputs on these ranks. Throws Error if another value is between them.
HostPlaces host_inputs(const Program& program, const RankClass& ranks);
/// The block of results up to `most` bytes each. Results that are params, states or inputs are not copied.
HostPlaces host_results(const Program& program, const RankClass& ranks, int64_t most = small_result_bytes);

}  // namespace orrery
