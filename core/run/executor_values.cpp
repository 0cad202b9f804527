// Implements the part of Executor about values after a step, times and costs, and the device's choices.
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

/// Returns the counter's index in costs_. Instructions with the same kernel or opcode, axis and bytes share a counter.
int Executor::cost_id(Cost cost) {
    const auto same = [&](const Cost& other) {
        return other.kind == cost.kind && other.kernel == cost.kernel && other.axis == cost.axis &&
               other.bytes == cost.bytes && other.name == cost.name;
    };
    const auto found = std::find_if(costs_.begin(), costs_.end(), same);
    if (found != costs_.end()) return static_cast<int>(found - costs_.begin());
    costs_.push_back(std::move(cost));
    return std::ssize(costs_) - 1;
}

/// Saves the times of the first step separately, because that step touches new memory and initialises libraries.
void Executor::keep_first() {
    for (Cost& cost : costs_) {
        cost.first = cost.all;
        cost.first_beside = cost.beside;
    }
    first_processor_s_ = processor_s_;
}

std::vector<Executor::Time> Executor::times() const {
    std::vector<Time> times;
    for (const Cost& cost : costs_) {
        auto found = std::find_if(times.begin(), times.end(),
                                  [&](const Time& time) { return time.name == cost.name && time.kind == cost.kind; });
        if (found == times.end())
            found = times.insert(
                found, {cost.name, cost.kind, 0, 0, cost.axis == none ? "" : plan_.mesh.axis(cost.axis).name});
        found->seconds += cost.all.seconds;
        found->count += cost.all.count;
    }
    return times;
}

void Executor::record(StepRecord& record) {
    int64_t most = 3 + issues(class_);  // max number of spans, with a few waits for the copy of a save
    for (size_t i = 0; i < class_.stream.size(); ++i) most += times_of(class_, i) * std::ssize(class_.stream[i].waits);
    record.spans.clear();
    record.spans.reserve(most);
    record.beside.assign(issues(class_), {});
    record_ = &record;
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
