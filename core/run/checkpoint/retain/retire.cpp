#include "run/checkpoint/retain/retire.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "run/checkpoint/format/manifest.h"
#include "run/metrics/step_metrics.h"

namespace orrery {

StepFacts facts_of(const std::string& host) {
    StepFacts facts;
    const Json json = parse_json(host, {"", "what the manifest keeps for the run", 0, 0});
    if (!json.is_object()) return facts;
    const auto number = [&](const char* key) -> std::optional<double> {
        if (!json.contains(key) || !json[key].is_number()) return std::nullopt;
        const auto value = json[key].get<double>();
        return std::isfinite(value) ? std::optional(value) : std::nullopt;
    };
    constexpr double most = 1e15;  // max seconds since 1970; larger times are ignored
    if (const auto time = number("time"); time && std::abs(*time) < most) facts.time = static_cast<int64_t>(*time);
    facts.evaluation = number("eval_loss");
    return facts;
}

Retirement::Retirement(CheckpointStore& store, RetentionPolicy policy, std::function<double()> clock)
    : store_(store), policy_(policy), clock_(clock ? std::move(clock) : wall_time) {}

void Retirement::verified(int64_t step) {
    verified_.insert(step);
    damaged_.erase(step);
    facts_.erase(step);  // forgotten, as the step may have been written again
}

std::vector<RetainedStep> Retirement::steps() {
    const bool asks = policy_.hourly > 0 || policy_.daily > 0 || policy_.best > 0;
    std::map<int64_t, std::string> changed;
    for (const Stray& stray : store_.strays()) changed.emplace(stray.step, stray.what);
    std::vector<RetainedStep> steps;
    for (const int64_t number : store_.steps()) {
        RetainedStep& step = steps.emplace_back();
        step.step = number;
        step.suspect = trim(store_.mark_of(number));
        step.pin = trim(store_.pin_of(number));
        if (const auto found = changed.find(number); found != changed.end()) step.changed = found->second;
        if (verified_.count(number) > 0) step.state = RetainedStep::State::verified;
        if (const auto found = damaged_.find(number); found != damaged_.end()) {
            step.state = RetainedStep::State::damaged;
            step.damage = found->second;
        } else if (asks && step.suspect.empty()) {
            read(step);
        }
    }
    return steps;
}

void Retirement::read(RetainedStep& step) {
    auto found = facts_.find(step.step);
    if (found == facts_.end()) try {
            found = facts_.emplace(step.step, facts_of(Manifest::root_of(store_, step.step).host)).first;
        } catch (const Damaged& damage) {
            step.state = RetainedStep::State::damaged;
            step.damage = damaged_[step.step] = damage.what();
            return;
        } catch (const std::exception& failure) {
            return unreadable(step, failure.what());
        }
    step.time = found->second.time;
    step.evaluation = found->second.evaluation;
}

/// Treats a step that cannot be read as damaged, but does not remember that, since the failure may be temporary.
void Retirement::unreadable(RetainedStep& step, const std::string& why) {
    step.state = RetainedStep::State::damaged;
    step.damage = "it cannot be read: " + why;
}

void Retirement::verify(RetainedStep& step) {
    try {
        step.damage = damage_of(store_, step.step);
    } catch (const std::exception& failure) {
        return unreadable(step, failure.what());
    }
    step.state = step.damage.empty() ? RetainedStep::State::verified : RetainedStep::State::damaged;
    if (step.damage.empty())
        verified_.insert(step.step);
    else
        damaged_[step.step] = step.damage;
}

std::vector<Verdict> Retirement::look() {
    std::vector<RetainedStep> all = steps();
    const auto now = static_cast<int64_t>(clock_());
    for (;;) {
        std::vector<Verdict> verdicts = retain(all, policy_, now);
        RetainedStep* unread = nullptr;
        for (const Verdict& verdict : verdicts) {
            if (!verdict.newest) continue;
            const auto at = std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.step == verdict.step; });
            if (at->state != RetainedStep::State::unread) continue;
            unread = &*at;
            break;
        }
        if (!unread) return verdicts;
        verify(*unread);
    }
}

std::vector<Verdict> Retirement::retire() {
    std::vector<Verdict> verdicts = look();
    for (auto verdict = verdicts.rbegin(); verdict != verdicts.rend(); ++verdict)
        if (verdict->goes) remove(*verdict);
    return verdicts;
}

/// Removes a step unless it was pinned after look(). If it is pinned during the removal, the store throws. The next
/// call tries again to remove a step that could not be removed.
void Retirement::remove(Verdict& verdict) {
    const auto kept = [&] {
        const std::string pin(trim(store_.pin_of(verdict.step)));
        if (pin.empty()) return false;
        verdict.goes = false;
        verdict.why = "pinned: " + pin;
        return true;
    };
    if (kept()) return;
    // Forgets the step, because a later save may write it again.
    verified_.erase(verdict.step);
    damaged_.erase(verdict.step);
    facts_.erase(verdict.step);
    try {
        store_.remove(verdict.step);
    } catch (const Error& failure) {
        const bool there = has_step(store_, verdict.step);
        if (there && kept()) return;
        verdict.goes = !there;
        verdict.failed = true;
        verdict.why = failure.what();
    }
}

}  // namespace orrery
