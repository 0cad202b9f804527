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

/// What a step's manifest says of itself, of what the policy asks.
struct StepFacts {
    std::optional<int64_t> time;
    std::optional<double> evaluation;
};
/// `host`: the JSON object that the manifest keeps. What is not there, or is no such number, is left out.
StepFacts facts_of(const std::string& host);

/// Applies a policy to a store, and remembers of its steps what it has read. On one process at a time.
class Retirement {
public:
    /// `clock`: seconds since 1970; empty: the machine's.
    Retirement(CheckpointStore& store, RetentionPolicy policy, std::function<double()> clock = {});

    /// The step was read whole, or written and read back, and is good.
    void verified(int64_t step);
    /// One of them is not as it was. Others may have the same files by links, so that none counts until it is read
    /// again, as far as it is needed.
    void doubt() { verified_.clear(); }
    /// What would become of each step, the newest first. Reads those of the newest that are not known to be good.
    std::vector<Verdict> look();
    /// Removes what goes; returns all verdicts. What the store cannot remove is left, and its verdict says why. Throws
    /// what the store throws when it is asked for its steps.
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
