#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "orrery/checkpoint.h"
#include "run/checkpoint/retain/retention.h"

namespace orrery {

/// What a step's manifest records for the retention policy.
struct StepFacts {
    std::optional<int64_t> time;  ///< when the step was saved, seconds since 1970
    std::optional<double> evaluation;
};
/// Reads save time and held-out loss from Manifest::host. What is missing or not a finite number stays empty.
StepFacts facts_of(const std::string& host);

/// Applies a retention policy to a checkpoint store. Remembers what it has read, so that each step is read once. Only
/// one process may retire steps of a store at a time.
class Retirement {
public:
    /// `clock`: returns seconds since 1970; empty: the machine's clock.
    Retirement(CheckpointStore& store, RetentionPolicy policy, std::function<double()> clock = {});

    /// Records that a step is valid: it was read completely, or written and read back.
    void verified(int64_t step);
    /// Forgets which steps are valid, after one of them changed: other steps may share its files by links.
    void doubt() { verified_.clear(); }
    /// Returns verdicts on all steps, newest first. Reads steps that rule `newest` keeps, unless they are verified.
    std::vector<Verdict> look();
    /// Removes the steps that no rule keeps. Returns all verdicts. A step that the store cannot remove stays, with the
    /// reason in its verdict. Throws what the store throws while steps are listed.
    std::vector<Verdict> retire();

private:
    std::vector<RetainedStep> steps();
    void remove(Verdict& verdict);
    void read(RetainedStep& step);
    void verify(RetainedStep& step);
    static void unreadable(RetainedStep& step, const std::string& why);

    CheckpointStore& store_;
    RetentionPolicy policy_;
    std::function<double()> clock_;
    std::set<int64_t> verified_;
    std::map<int64_t, std::string> damaged_;
    std::map<int64_t, StepFacts> facts_;
};

}  // namespace orrery
