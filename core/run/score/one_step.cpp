#include "run/score/one_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/text.h"

namespace orrery {

OneStep::OneStep(CheckpointStore& store, int64_t step) : store_(store), step_(step) {
    const std::vector<int64_t> all = store.steps();
    if (std::find(all.begin(), all.end(), step) != all.end()) return;
    std::vector<std::string> names;
    for (const int64_t known : all) names.push_back(std::to_string(known));
    throw Error(fmt::format("{} has no checkpoint of step {}: {}", store.place(), step,
                            names.empty() ? "it has none" : "it has " + join(names, ", ")));
}

std::string OneStep::refuse() { throw std::logic_error("a store of one step is only read"); }

}  // namespace orrery
