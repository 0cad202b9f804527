#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orrery {

/// The rules for which checkpoints of a run are retained. A checkpoint is retained if at least one rule keeps it. A
/// rule of 0 does not apply.
struct RetentionPolicy {
    static constexpr int64_t least = 2;  ///< min value of `newest`

    int64_t newest = least;   ///< number of newest steps to keep
    int64_t every_steps = 0;  ///< keep every step whose number is a multiple of this
    int64_t hourly =
        0;  ///< number of hours (UTC) of which the newest step is retained; hours without a step do not count
    int64_t daily = 0;  ///< number of days (UTC) of which the newest step is retained
    int64_t best = 0;   ///< number of steps with the lowest loss on held-out data to keep

    RetentionPolicy(int64_t newest_ = least) : newest(newest_) {}
    /// The rules as text: "the newest 2, every step that 1,000 divides, one an hour for 24 hours".
    std::string text() const;
    bool operator==(const RetentionPolicy&) const = default;
};

/// What the retention policy must know about a committed step.
struct RetainedStep {
    enum class State : uint8_t { verified, unread, damaged };  ///< unread: not checked yet, treated as valid

    int64_t step = 0;
    State state = State::unread;
    std::string damage = {};
    std::string suspect = {};          ///< text of its suspect mark; "": not marked
    std::string pin = {};              ///< text of its pin; "": not pinned
    std::string changed = {};          ///< how another program changed the step, which prevents removal; "": it did not
    std::optional<int64_t> time = {};  ///< when the step was saved, seconds since 1970
    std::optional<double> evaluation = {};  ///< the step's loss on held-out data, finite
};

struct Verdict {
    int64_t step = 0;
    bool goes = false;    ///< whether the step is to be removed
    bool newest = false;  ///< whether `RetentionPolicy::newest` keeps the step, which must then be verified
    std::string why;      ///< "one of the newest 2; pinned: for the paper", "no rule keeps it"
    bool failed = false;  ///< the store failed to remove the step, for the reason in `why`
};

/// Decides which steps to retain; returns verdicts newest step first. Rules ignore damaged and suspect steps. Never
/// removed are damaged and pinned steps, steps changed from outside, and the newest two valid ones. A suspect step is
/// removed once `policy.newest` valid steps are newer. Of two steps with equal loss the newer one is better. `now`:
/// seconds since 1970. The order of `steps` does not matter. Throws Error if policy.newest is below 2.
std::vector<Verdict> retain(std::span<const RetainedStep> steps, const RetentionPolicy& policy, int64_t now);

/// Whether a step's time is in the future, because the wall clock was ahead when it was saved; then it counts for no
/// hour or day. False if `now` is before 2020, as the clock is unset then.
bool later_than(int64_t now, const std::optional<int64_t>& time);

/// A step that is due to be saved while an earlier save is still under way.
struct DueStep {
    int64_t step = 0;
    bool evaluated = false;            ///< whether the step's state was evaluated on held-out data
    int64_t now = 0;                   ///< current time, seconds since 1970
    std::optional<int64_t> last = {};  ///< when the save under way began, seconds since 1970
};

/// Whether the step must not be skipped, because a rule (every_steps, best, hourly or daily) may have to keep it.
bool needs(const RetentionPolicy& policy, const DueStep& due);
/// Whether `needs` depends on DueStep::now, which must then be the same on all ranks.
bool needs_clock(const RetentionPolicy& policy);
/// Whether the rule `every_steps` keeps the step forever.
bool keeps_for_good(const RetentionPolicy& policy, int64_t step);

}  // namespace orrery
