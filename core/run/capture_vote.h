#pragma once
#include <functional>
#include <string>
#include <vector>

namespace orrery {

/// Returns every rank's text in rank order. Collective over all ranks.
using TextExchange = std::function<std::vector<std::string>(const std::string& mine)>;

/// Makes either all ranks or none keep the step that the device captured, because communication libraries replay a
/// captured step only if every rank does. Returns "" if all ranks captured it; otherwise names the first rank that did
/// not, with its reason: "rank 3 could not: ...". `why`: this rank's reason, if it did not. Collective.
std::string agree_on_capture(bool captured, const std::string& why, const TextExchange& exchange);

}  // namespace orrery
