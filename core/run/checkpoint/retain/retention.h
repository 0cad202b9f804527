#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace orrery {

/// Which checkpoints of a run stay. A rule that is 0 keeps none; what any rule keeps stays.
struct RetentionPolicy {
    static constexpr int64_t least = 2;  ///< verified ones that always stay

    int64_t newest = least;   ///< the newest so many
    int64_t every_steps = 0;  ///< every step that this divides
    int64_t hourly = 0;       ///< the newest of each of the last so many hours (UTC) that have one
    int64_t daily = 0;        ///< the same of days
    int64_t best = 0;         ///< the so many of the least loss on held-out data

    RetentionPolicy(int64_t newest_ = least) : newest(newest_) {}
    /// "the newest 2, every 1,000th step, one an hour for 24 hours, the best 3 by evaluation"
    std::string text() const;
    bool operator==(const RetentionPolicy&) const = default;
};

/// A committed step, as the policy sees it.
struct RetainedStep {
    /// Known to be good; not looked at, which counts as good; damaged.
    enum class State : uint8_t { verified, unread, damaged };

    int64_t step = 0;
    State state = State::unread;
    std::string damage = {};           ///< of a damaged one: what is wrong
    std::string suspect = {};          ///< its mark, "": none
    std::string pin = {};              ///< the text that it is pinned with, "": it is not
    std::string changed = {};          ///< how others have changed it, so that it is not removed; "": they have not
    std::optional<int64_t> time = {};  ///< seconds since 1970 when it was saved
    std::optional<double> evaluation = {};  ///< its loss on held-out data, finite
};

/// What becomes of a step.
struct Verdict {
    int64_t step = 0;
    bool goes = false;
    bool newest = false;  ///< it is one of the newest that stay for being that: these must be verified
    std::string why;      ///< "one of the newest 2; pinned: for the paper", "no rule keeps it"
    bool failed = false;  ///< no rule keeps it, but the store failed to remove it, for the reason in `why`
};

/// One verdict per step, the newest first. One that is damaged or suspect counts for no rule; a damaged one never goes,
/// nor does one that is pinned or that others have changed, and a suspect one goes when the policy's newest are all
/// after it. Of those that count the newest two never go. Of two with one loss the newer is the better. `now`: seconds
/// since 1970. The same for the same steps in any order. Throws Error for a policy below the least.
std::vector<Verdict> retain(std::span<const RetainedStep> steps, const RetentionPolicy& policy, int64_t now);

/// Whether a step was saved while the wall clock was ahead, so that it counts for no hour or day until then. A clock
/// that is unset (before 2020) says nothing of others.
bool later_than(int64_t now, const std::optional<int64_t>& time);

/// A step that is due to be saved while the save before it is still under way.
struct DueStep {
    int64_t step = 0;
    bool evaluated = false;            ///< this very state, on held-out data
    int64_t now = 0;                   ///< seconds since 1970
    std::optional<int64_t> last = {};  ///< when the save under way began
};

/// Whether a rule loses what it would keep if this step was left out: the one list of what rules need, which
/// asynchronous saves ask. `newest` takes what there is, and a pin names a step that was committed.
bool needs(const RetentionPolicy& policy, const DueStep& due);
/// Whether `needs` looks at the clock, which ranks must agree on.
bool needs_clock(const RetentionPolicy& policy);
/// Whether the policy keeps the step for its number alone.
bool keeps_for_good(const RetentionPolicy& policy, int64_t step);

}  // namespace orrery
