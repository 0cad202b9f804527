#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// Returns the min number of insertions, deletions, substitutions and adjacent swaps that turn one word into the other.
int edit_distance(std::string_view a, std::string_view b);

/// Returns the candidate closest to the name; "" if its edit_distance exceeds a third of the letters and exceeds 1.
std::string closest(std::string_view name, const std::vector<std::string>& candidates);

/// Returns `did you mean "nccl"?`; "" if no candidate is close.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

/// Returns the second line of a message about an unknown name: "\n  <label>: gloo, nccl, shm        did you mean
/// "nccl"?". Lists 12 names or fewer. "" if there are no candidates.
std::string choices(std::string_view label, std::string_view name, std::vector<std::string> candidates);

}  // namespace orrery
