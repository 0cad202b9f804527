#pragma once
#include <string>
#include <string_view>

namespace orrery::kubernetes {

/// Returns a text as a YAML scalar on one line: plain if YAML can only read it as that text, else in double quotes.
/// Throws Error naming `what` for bytes that YAML cannot hold: NUL, or bytes that are not UTF-8.
std::string scalar(std::string_view text, std::string_view what);

/// scalar() of a text in which Kubernetes expands $(VARIABLE): each $ is written $$.
std::string unexpanded(std::string_view text, std::string_view what);

/// Returns the lines of a block, each with `depth` more spaces.
std::string indented(std::string_view block, size_t depth);

}  // namespace orrery::kubernetes
