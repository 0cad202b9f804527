#pragma once
#include <functional>
#include <string>
#include <vector>

namespace orrery {

/// Returns every rank's text in rank order. Collective over all ranks.
using TextExchange = std::function<std::vector<std::string>(const std::string& mine)>;

/// Decides whether ranks keep their captured steps: all or none, because communication libraries replay a captured step
/// only if every rank does. Returns "" if all ranks captured a step; otherwise the first rank that did not, with its
/// reason: "rank 3 could not: ...". `why`: why this rank did not capture. Collective.
std::string agree_on_capture(bool captured, const std::string& why, const TextExchange& exchange);

}  // namespace orrery
