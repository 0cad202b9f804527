#include "run/capture_vote.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

std::string agree_on_capture(bool captured, const std::string& why, const TextExchange& exchange) {
    const std::vector<std::string> ranks = exchange(captured ? "captured" : "not " + why);
    const auto first =
        std::find_if_not(ranks.begin(), ranks.end(), [](const std::string& rank) { return rank == "captured"; });
    if (first == ranks.end()) return "";
    return fmt::format("rank {} could not: {}", first - ranks.begin(), first->substr(4));
}

}  // namespace orrery
