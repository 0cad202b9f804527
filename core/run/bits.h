#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

namespace orrery {

/// One thing that the last bits of a rank's numbers depend on, besides its script, settings and data.
struct BitSource {
    std::string name;       ///< "threads_per_rank", "instructions", "device/cpu"
    std::string value;      ///< "2", "avx512"; of a library the digest of its code, "": it has none
    std::string file = {};  ///< of a library
};
using BitSources = std::vector<BitSource>;

/// Of Device::arithmetic.
BitSources bit_sources_of(std::string_view arithmetic);

/// Values by name, as checkpoints and run.json keep them.
Json to_json(const BitSources& bits);
/// The inverse, without files; nullopt where a checkpoint does not record them.
std::optional<BitSources> saved_bits(const Json& json);

/// Another rank's, or one's own, for other ranks.
struct RankBits {
    std::string host;
    BitSources bits;
};
std::string encode(const RankBits& rank);
RankBits decode_bits(const std::string& text);

/// A line for each host, and for ranks of it that differ, of what is not as on rank 0, with files; at most eight.
std::vector<std::string> bits_between(const std::vector<RankBits>& ranks);

/// The line of a run on `now.host` that resumes from a checkpoint of `step` with the bits `saved`, where they differ;
/// "" where they do not. nullopt: the checkpoint does not record them, which the line says.
std::string bits_since(const std::optional<BitSources>& saved, const RankBits& now, int64_t step);

}  // namespace orrery
