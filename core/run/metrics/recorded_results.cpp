#include "run/metrics/recorded_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compile/capacity.h"
#include "compile/passes/loss_scale.h"
#include "compile/passes/status_word.h"
#include "compile/step_value.h"
#include "orrery/error.h"
#include "plan/host_places.h"
#include "run/metrics/step_metrics.h"

namespace orrery {
namespace {

/// Keys that every line of metrics.jsonl has, whatever the script declares.
std::set<std::string> keys_of(const Program& program) {
    std::set<std::string> keys = {"step", "eval_loss", "eval_tokens", "eval_count"};
    for (const bool tokens : {true, false})
        for (const StepColumn& column : step_columns())
            if (column.exists({.tokens = tokens,
                               .nats = tokens,
                               .scale = has_loss_scale(program),
                               .capacity = program.result(overflow_name).has_value()}))
                keys.insert(column.key);
    return keys;
}

std::string why_not(const std::string& name, const Value& value) {
    constexpr int64_t most_elements = small_result_bytes / 4;
    const auto& splits = value.layout.splits();
    const bool whole = std::all_of(splits.begin(), splits.end(), [](const auto& axes) { return axes.empty(); });
    if (value.type.dtype == DType::f32 && value.type.count() <= most_elements && whole) return "";
    return fmt::format(
        "result {} is {}{}: metrics.jsonl records f32 of at most {} elements, not split over ranks; cast or sum it",
        name, value.type.text(), whole ? "" : ", split over ranks", most_elements);
}

}  // namespace

bool has_loss_scale(const Program& program) {
    const auto state = program.find("loss_scale");
    return state && program.value(*state).role == Role::state && program.result("loss_scale");
}

std::vector<RecordedResult> recorded_results(const Program& program) {
    std::set<std::string> taken = {"loss_sum", "count", "grad_norm", "lr"};
    for (const std::string_view name : {status_name, guard_name, overflow_name, below_name}) taken.emplace(name);
    if (has_loss_scale(program)) taken.insert({"loss_scale", "skipped"});
    const std::set<std::string> keys = keys_of(program);
    const std::vector<Quotient> declared = quotients(program);
    std::vector<RecordedResult> results;
    std::set<std::string> names;
    const auto add = [&](const Value& value, RecordedResult result) {
        if (keys.contains(result.name))
            throw Error(value.origin,
                        fmt::format("result {} has the name of a built-in key of metrics.jsonl\n  rename the result",
                                    result.name));
        if (!names.insert(result.name).second)
            throw Error(value.origin, fmt::format("two results are named {}, by o.result and by the optimizer\n  "
                                                  "rename one",
                                                  result.name));
        results.push_back(std::move(result));
    };
    for (const Quotient& quotient : declared) {
        const Value& value = program.value(*program.result(quotient.sum));
        taken.insert({quotient.sum, quotient.count});
        add(value, {quotient.name, "", quotient});
    }
    for (const Result& result : program.results) {
        if (taken.contains(result.name)) continue;
        const Value& value = program.value(result.value);
        std::string name = result.name;
        const bool shown = name.ends_with(step_value_ending);
        if (shown) name.resize(name.size() - step_value_ending.size());
        RecordedResult recorded{name, why_not(name, value)};
        recorded.value = result.name;
        recorded.shown = shown;
        add(value, std::move(recorded));
    }
    return results;
}

void require_same_results(const Program& full, const Program& smaller) {
    const auto names = [](const Program& program) {
        std::set<std::string> all;
        for (const Result& result : program.results) all.insert(result.name);
        return all;
    };
    if (names(full) != names(smaller))
        throw Error(
            "the step of a smaller batch or capacity records other results than the full step\n"
            "  make model and optimizer record the same results in every call");
}

}  // namespace orrery
