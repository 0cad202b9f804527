#pragma once
#include <functional>
#include <string>
#include <vector>

namespace orrery {

/// Every rank's text in rank order, collective over all ranks.
using TextExchange = std::function<std::vector<std::string>(const std::string& mine)>;

/// Whether all ranks keep what they captured: libraries of messages replay them on every rank or on none. "" when all
/// have captured their step; otherwise the first that has not, with its reason: "rank 3 could not: ...". `why` is this
/// rank's reason, where it has not.
std::string agree_on_capture(bool captured, const std::string& why, const TextExchange& exchange);

}  // namespace orrery
