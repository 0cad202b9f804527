#include "run/retention/retention.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "orrery/error.h"

namespace orrery {
namespace {

constexpr int64_t hour = 3600, day = 24 * hour;

/// A step that counts, with the rules that keep it.
struct Counted {
    const RetainedStep* step;
    std::vector<std::string> rules = {};
};

/// Rounds down, before 1970 too.
int64_t period_of(int64_t time, int64_t length) { return time / length - (time % length < 0); }

/// The newest step of each of the newest `most` hours or days. A clock that was set back makes an old period new; the
/// step decides within one.
void keep_periods(std::vector<Counted>& counted, int64_t most, int64_t length, std::string_view name) {
    std::vector<int64_t> periods;
    for (const Counted& one : counted)
        if (one.step->time) periods.push_back(period_of(*one.step->time, length));
    std::sort(periods.rbegin(), periods.rend());
    periods.erase(std::unique(periods.begin(), periods.end()), periods.end());
    periods.resize(std::min(periods.size(), static_cast<size_t>(std::max<int64_t>(0, most))));
    for (Counted& one : counted) {  // the newest first: it takes its period
        if (!one.step->time) continue;
        const auto found = std::find(periods.begin(), periods.end(), period_of(*one.step->time, length));
        if (found == periods.end()) continue;
        periods.erase(found);
        one.rules.push_back(fmt::format("the newest of its {}", name));
    }
}

void keep_best(std::vector<Counted>& counted, int64_t most) {
    std::vector<Counted*> evaluated;
    for (Counted& one : counted)
        if (one.step->evaluation) evaluated.push_back(&one);
    std::stable_sort(evaluated.begin(), evaluated.end(),
                     [](const Counted* a, const Counted* b) { return *a->step->evaluation < *b->step->evaluation; });
    const auto count = std::min(evaluated.size(), static_cast<size_t>(std::max<int64_t>(0, most)));
    for (size_t i = 0; i < count; ++i)
        evaluated[i]->rules.push_back(most == 1 ? "the best by evaluation"
                                                : fmt::format("one of the best {} by evaluation", most));
}

/// Why a step stays whatever the rules say, "" when they decide.
std::string exempt(const RetainedStep& step) {
    if (step.state == RetainedStep::State::damaged) return "damaged, so it is left to be looked at: " + step.damage;
    if (!step.suspect.empty()) return "suspect, so it is left to be looked at: " + step.suspect;
    return "";
}

}  // namespace

std::string RetentionPolicy::text() const {
    std::vector<std::string> rules = {fmt::format("the newest {}", newest)};
    if (every_steps > 0) rules.push_back(fmt::format("every step that {} divides", count_text(every_steps)));
    if (hourly > 0) rules.push_back(fmt::format("one an hour for {}", plural(hourly, "hour")));
    if (daily > 0) rules.push_back(fmt::format("one a day for {}", plural(daily, "day")));
    if (best > 0) rules.push_back(fmt::format("the best {} by evaluation", best));
    return join(rules, ", ");
}

std::vector<Verdict> retain(std::span<const RetainedStep> steps, const RetentionPolicy& policy) {
    if (policy.newest < RetentionPolicy::least)
        throw Error(fmt::format("keeps {} checkpoints, expected at least {}", policy.newest, RetentionPolicy::least));
    std::vector<const RetainedStep*> sorted;
    for (const RetainedStep& step : steps) sorted.push_back(&step);
    std::sort(sorted.begin(), sorted.end(),
              [](const RetainedStep* a, const RetainedStep* b) { return a->step > b->step; });
    std::vector<Counted> counted;
    for (const RetainedStep* step : sorted)
        if (exempt(*step).empty()) counted.push_back({step});

    const auto newest = std::min(counted.size(), static_cast<size_t>(policy.newest));
    for (size_t i = 0; i < newest; ++i) counted[i].rules.push_back(fmt::format("one of the newest {}", policy.newest));
    if (policy.every_steps > 0)
        for (Counted& one : counted)
            if (one.step->step % policy.every_steps == 0)
                one.rules.push_back(fmt::format("{} divides it", count_text(policy.every_steps)));
    keep_periods(counted, policy.hourly, hour, "hour");
    keep_periods(counted, policy.daily, day, "day");
    keep_best(counted, policy.best);

    std::vector<Verdict> verdicts;
    size_t next = 0;  // of `counted`, which has the same order
    for (const RetainedStep* step : sorted) {
        Verdict verdict{step->step, false, false, exempt(*step)};
        std::vector<std::string> reasons;
        if (verdict.why.empty()) {
            verdict.newest = next < newest;
            reasons = std::move(counted[next++].rules);
        } else {
            reasons.push_back(verdict.why);
        }
        if (!step->pin.empty()) reasons.push_back("pinned: " + step->pin);
        if (!step->changed.empty()) reasons.push_back("not removed: " + step->changed);
        verdict.goes = reasons.empty();
        verdict.why = verdict.goes ? "no rule keeps it" : join(reasons, "; ");
        verdicts.push_back(std::move(verdict));
    }
    return verdicts;
}

}  // namespace orrery
