#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// The largest result that comes to the host with every step: 1,024 f32. Larger ones are read by who wants them.
constexpr int64_t small_result_bytes = 4096;

/// A block of the persistent arena that the host and a class of ranks exchange in one copy.
struct HostPlaces {
    int64_t begin = 0;  ///< in the arena
    int64_t bytes = 0;  ///< 0: there is nothing to copy
    struct Place {
        ValueId value = none;
        int64_t offset = 0;  ///< from `begin`
    };
    std::vector<Place> places;

    /// Where a value lies, from `begin`; nullopt: not in this block.
    std::optional<int64_t> offset(ValueId value) const;
};

/// The inputs that these ranks hold.
HostPlaces host_inputs(const Program& program, const RankClass& ranks);
/// Their results of at most `most` bytes, but those that are params, states or inputs themselves.
HostPlaces host_results(const Program& program, const RankClass& ranks, int64_t most = small_result_bytes);

}  // namespace orrery
