#include "run/checkpoint/retain/retention.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "orrery/error.h"

namespace orrery {
namespace {

constexpr int64_t hour = 3600, day = 24 * hour;

/// A valid step, with the retention rules that keep it.
struct Counted {
    const RetainedStep* step;
    std::vector<std::string> rules = {};
};

/// The number of the hour or day (`length` seconds) of a time, rounded down for negative times too.
int64_t period_of(int64_t time, int64_t length) { return time / length - (time % length < 0); }

/// Keeps the newest step of each of the last `most` hours or days that have one. The step number, not the time, decides
/// which step of a period is the newest, because the clock may have been set back.
void keep_periods(std::vector<Counted>& counted, int64_t most, int64_t length, int64_t now, std::string_view name) {
    const auto dated = [&](const Counted& one) { return one.step->time && !later_than(now, one.step->time); };
    std::vector<int64_t> periods;
    for (const Counted& one : counted)
        if (dated(one)) periods.push_back(period_of(*one.step->time, length));
    std::sort(periods.rbegin(), periods.rend());
    periods.erase(std::unique(periods.begin(), periods.end()), periods.end());
    periods.resize(std::min(periods.size(), static_cast<size_t>(std::max<int64_t>(0, most))));
    for (Counted& one : counted) {  // `counted` has the newest step first
        if (!dated(one)) continue;
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

bool counts(const RetainedStep& step) { return step.state != RetainedStep::State::damaged && step.suspect.empty(); }

/// Why a damaged or suspect step is retained or removed, and whether it is removed. A suspect step is removed once
/// `newest` valid steps are newer.
std::pair<std::string, bool> passed_over(const RetainedStep& step, const std::vector<Counted>& counted,
                                         int64_t newest) {
    if (step.state == RetainedStep::State::damaged)
        return {"damaged, so it is left for inspection: " + step.damage, false};
    const auto after = static_cast<size_t>(newest);
    if (counted.size() >= after && counted[after - 1].step->step > step.step)
        return {fmt::format("suspect, and there are {} newer valid ones: {}", newest, step.suspect), true};
    return {"suspect, so it is left for inspection: " + step.suspect, false};
}

/// Whether a step that is due should be the only one saved in its hour or day (`length` seconds): the last save began
/// before that hour or day, and at the current interval between saves the next one is due after it.
bool alone_in_period(const DueStep& due, int64_t length) {
    if (!due.last) return true;
    const int64_t period = period_of(due.now, length);
    return period_of(*due.last, length) != period && period_of(2 * due.now - *due.last, length) != period;
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

bool later_than(int64_t now, const std::optional<int64_t>& time) {
    constexpr int64_t set = 1'577'836'800;  // 2020-01-01, in seconds since 1970
    return now >= set && time && *time > now;
}

bool keeps_for_good(const RetentionPolicy& policy, int64_t step) {
    return policy.every_steps > 0 && step % policy.every_steps == 0;
}

bool needs_clock(const RetentionPolicy& policy) { return policy.hourly > 0 || policy.daily > 0; }

bool needs(const RetentionPolicy& policy, const DueStep& due) {
    return keeps_for_good(policy, due.step) || (policy.best > 0 && due.evaluated) ||
           (policy.hourly > 0 && alone_in_period(due, hour)) || (policy.daily > 0 && alone_in_period(due, day));
}

std::vector<Verdict> retain(std::span<const RetainedStep> steps, const RetentionPolicy& policy, int64_t now) {
    if (policy.newest < RetentionPolicy::least)
        throw Error(fmt::format("the retention policy keeps {} checkpoints, expected at least {}", policy.newest,
                                RetentionPolicy::least));
    std::vector<const RetainedStep*> sorted;
    for (const RetainedStep& step : steps) sorted.push_back(&step);
    std::sort(sorted.begin(), sorted.end(),
              [](const RetainedStep* a, const RetainedStep* b) { return a->step > b->step; });
    std::vector<Counted> counted;
    for (const RetainedStep* step : sorted)
        if (counts(*step)) counted.push_back({step});

    const auto newest = std::min(counted.size(), static_cast<size_t>(policy.newest));
    for (size_t i = 0; i < newest; ++i) counted[i].rules.push_back(fmt::format("one of the newest {}", policy.newest));
    for (Counted& one : counted)
        if (keeps_for_good(policy, one.step->step))
            one.rules.push_back(fmt::format("{} divides it", count_text(policy.every_steps)));
    keep_periods(counted, policy.hourly, hour, now, "hour");
    keep_periods(counted, policy.daily, day, now, "day");
    keep_best(counted, policy.best);

    std::vector<Verdict> verdicts;
    size_t next = 0;
    for (const RetainedStep* step : sorted) {
        Verdict verdict{step->step, false, false, "no rule keeps it"};
        std::vector<std::string> reasons;
        if (counts(*step)) {
            verdict.newest = next < newest;
            reasons = std::move(counted[next++].rules);
        } else if (auto [why, goes] = passed_over(*step, counted, policy.newest); goes) {
            verdict.why = std::move(why);
        } else {
            reasons.push_back(std::move(why));
        }
        if (!step->pin.empty()) reasons.push_back("pinned: " + step->pin);
        if (!step->changed.empty()) reasons.push_back("not removed: " + step->changed);
        verdict.goes = reasons.empty();
        if (!verdict.goes) verdict.why = join(reasons, "; ");
        verdicts.push_back(std::move(verdict));
    }
    return verdicts;
}

}  // namespace orrery
