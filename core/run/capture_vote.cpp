#include "run/capture_vote.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery {

std::string agree_on_capture(bool captured, const std::string& why, const TextExchange& exchange) {
    const std::vector<std::string> ranks = exchange(captured ? "captured" : "not " + why);
    const auto is = [](const char* text) { return [text](const std::string& rank) { return rank == text; }; };
    if (std::all_of(ranks.begin(), ranks.end(), is("captured"))) return "";
    if (std::all_of(ranks.begin(), ranks.end(), is("not "))) return "-";
    const auto first = std::find_if_not(ranks.begin(), ranks.end(), is("captured"));
    const std::string reason = first->substr(4);
    return fmt::format("rank {} could not: {}", first - ranks.begin(),
                       reason.empty() ? "its device has no use for it" : reason);
}

}  // namespace orrery
