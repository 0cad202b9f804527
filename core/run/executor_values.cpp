// Executor: what it holds after a step, by value, and which kernels it runs.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "run/executor.h"

namespace orrery {

std::vector<std::string> Executor::choices() const {
    std::map<std::pair<std::string, std::string>, int> chosen;
    for (size_t k = 0; k < kernels_.size(); ++k)
        if (kernels_[k] && !kernels_[k]->how().empty()) ++chosen[{class_.kernels[k].op, kernels_[k]->how()}];
    std::vector<std::string> lines;
    for (const auto& [what, specs] : chosen)
        lines.push_back(fmt::format("{} ({}): {}", what.first, specs, what.second));
    return lines;
}

bool Executor::holds(ValueId value) const {
    return std::any_of(class_.places.begin(), class_.places.end(),
                       [&](const Operand& place) { return place.value == value; });
}

Tensor Executor::tensor(ValueId value) const {
    for (const Operand& place : class_.places)
        if (place.value == value) return at(place, 0);
    const std::string& name = plan_.program.value(value).name;
    throw Error("program " + plan_.program.name + " keeps no '" + name +
                "' after a step; only inputs, params, states and results can be read");
}

}  // namespace orrery
