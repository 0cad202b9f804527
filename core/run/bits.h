#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"

namespace orrery {

/// One thing that affects the last bits of a rank's numbers, besides its script, settings and data.
struct BitSource {
    std::string name;       ///< "threads_per_rank", "instructions", "device/cpu"
    std::string value;      ///< "2", "avx512"; for a library the digest of its code, "" if it has none
    std::string file = {};  ///< path of a library
};
using BitSources = std::vector<BitSource>;

/// Parses Device::arithmetic.
BitSources bit_sources_of(std::string_view arithmetic);

/// Values by name, as stored in checkpoints and run.json.
Json to_json(const BitSources& bits);
/// Parses the output of to_json. Files stay empty. nullopt if the checkpoint does not record bit sources.
std::optional<BitSources> saved_bits(const Json& json);

/// The bit sources of one rank, as sent to other ranks.
struct RankBits {
    std::string host;
    BitSources bits;
};
std::string encode(const RankBits& rank);
RankBits decode_bits(const std::string& text);

/// Lists what differs from rank 0, with files: a line for each host and each group of its ranks with the same
/// differences; at most eight lines.
std::vector<std::string> bits_between(const std::vector<RankBits>& ranks);

/// The line that a run on `now.host` prints when it resumes from a checkpoint of `step` whose bits `saved` differ; ""
/// if they are equal. If `saved` is nullopt, the line says that the checkpoint does not record them.
std::string bits_since(const std::optional<BitSources>& saved, const RankBits& now, int64_t step);

}  // namespace orrery
