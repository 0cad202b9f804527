#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "orrery/config.h"

namespace orrery {

struct Settings;

/// The table [submit], read and validated.
struct SubmitSettings {
    int64_t nodes = 0, ranks_per_node = 0;  ///< 0: not set
    int64_t gpus_per_node = -1;             ///< -1: not set
    int64_t time_s = 0;                     ///< 0: the engine's default
    std::vector<std::string> before;
    std::vector<std::pair<std::string, std::string>> environment;
};

SubmitSettings read_submit(Config& config);

/// Sets the numbers of nodes and of ranks per node that are not set. Throws Error with both numbers if the mesh's ranks
/// do not fit.
void place_ranks(SubmitSettings& submit, const Settings& settings, Config& config);

}  // namespace orrery
