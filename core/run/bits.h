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
    std::string name;       ///< what it is: "threads_per_rank", "instructions", "device/cpu"
    std::string value;      ///< "2", "avx512"; for a library the digest of its code, "" if it has none
    std::string file = {};  ///< path, if the source is a library; "" otherwise
};
using BitSources = std::vector<BitSource>;

/// Name of a device's source. Its value is "fixed", or begins with "any" where two runs differ in the last bits.
inline constexpr std::string_view order_of_sums = "order of sums";

/// Parses the text of Device::arithmetic, one "name=value" a line, into bit sources.
BitSources bit_sources_of(std::string_view arithmetic);

/// A JSON object with each source's value under its name, as stored in checkpoints and run.json.
Json to_json(const BitSources& bits);
/// Reads the bit sources that a checkpoint stores; BitSource::file stays empty. nullopt if the checkpoint records none.
std::optional<BitSources> saved_bits(const Json& json);

/// What affects the last bits of one rank's numbers, with the rank's host, as sent to other ranks.
struct RankBits {
    std::string host;
    BitSources bits;
};
std::string encode(const RankBits& rank);
RankBits decode_bits(const std::string& text);

/// Returns a line for each group of ranks on one host whose bit sources differ from rank 0's in the same way: ranks,
/// host and differences. After eight lines, one more counts the remaining groups.
std::vector<std::string> bits_between(const std::vector<RankBits>& ranks);

/// Returns the line to print when a run on host `now.host` resumes from a checkpoint of step `step` with other bit
/// sources, `saved` (nullopt: the checkpoint records none); "" if they are equal.
std::string bits_since(const std::optional<BitSources>& saved, const RankBits& now, int64_t step);

}  // namespace orrery
