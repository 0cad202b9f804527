#pragma once
#include <functional>
#include <string>
#include <vector>

namespace orrery {

/// Returns every rank's text in rank order. Collective over all ranks.
using TextExchange = std::function<std::vector<std::string>(const std::string& mine)>;

/// Decides whether ranks keep their captured steps. All must or none, because communication libraries replay a captured
/// step only together. Returns "" if all ranks captured; otherwise the first one that did not, with its reason: "rank 3
/// could not: ...". `why`: this rank's reason if it did not. Collective.
std::string agree_on_capture(bool captured, const std::string& why, const TextExchange& exchange);

}  // namespace orrery
