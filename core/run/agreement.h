#pragma once
#include <string>
#include <utility>
#include <vector>

namespace orrery {

/// What all ranks must have alike, each part with a name: "train.steps" and "300".
using Agreement = std::vector<std::pair<std::string, std::string>>;

std::string encode(const Agreement& parts);

/// `all`: encoded, by rank. Throws Fault::peer naming the first rank that differs from rank 0, and in what; of several
/// parts the first few.
void require_agreement(const std::vector<std::string>& all);

}  // namespace orrery
