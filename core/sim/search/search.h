#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/search/choice.h"

namespace orrery {

/// What a choice comes to.
struct Judged {
    Choice choice;
    std::string why_not;  ///< "": it runs; the first line of what is wrong with it
    double step_s = 0;
    double computing_s = 0;  ///< of a rank, on average
    double mfu = 0;
    int64_t memory_bytes = 0;          ///< of the rank that has least left beside it
    double memory_limit = 0;           ///< bytes that this rank has; 0: not judged
    int64_t memory_rank = -1;          ///< which one, where they have different accelerators; -1: any
    std::string binds;                 ///< what takes most of the time beside computing, or "memory"
    std::vector<std::string> sources;  ///< where its times are from, a line each; none: from formulas

    /// Bytes that there are too many; negative: that are left.
    double over() const { return static_cast<double>(memory_bytes) - memory_limit; }
    /// It runs, and there is room for it.
    bool fits() const { return why_not.empty() && (memory_limit == 0 || over() <= 0); }
};

/// Choices that do not run or fit for one reason.
struct Refused {
    Judged closest;  ///< the one that is least too large; its `why_not` is "" where they run and do not fit
    int64_t count = 0;
};

struct Found {
    std::vector<Judged> best;                 ///< that fit, the fastest first
    std::vector<Refused> refused;             ///< those that do not run or fit, by reason
    std::vector<Judged> all;                  ///< all that run, also those that do not fit
    int64_t compiled = 0;                     ///< that were judged
    std::map<std::string, int64_t> left_out;  ///< that were not, by reason
    std::vector<std::string> edges;           ///< where the best lies on the border of what was searched

    int64_t pruned() const;
};

/// Looks for the fastest choices, in rounds of choices that are judged at once; what a round has depends on the rounds
/// before it alone, so that how many are really judged at the same time changes nothing.
///
/// Every mesh with usual options first, each until it fits (recomputation on, ZeRO up); then from the fastest meshes,
/// one step in each option and all that were faster together, until nothing is. A mesh beside the best one begins with
/// the options of that, too, and goes on only while it is near it. Left out without `judge`: what cannot fit by its
/// parameters' state, or by what it takes with another ZeRO stage; what could not be among the best (the tenth, a
/// quarter slower than the first) if its kernels ran a twentieth faster than any seen so far and nothing but the
/// pipeline's own bubble were lost.
class Search {
public:
    /// Judges choices in any order, and hands each back with its place; all when it returns.
    using Done = std::function<void(size_t place, Judged judged)>;
    using Judge = std::function<void(const std::vector<Choice>& choices, const Done& done)>;
    /// After each choice, with the best so far.
    using Progress = std::function<void(int64_t judged, int64_t left, const Judged* best)>;

    Search(SearchSpace space, Judge judge, Progress progress = {})
        : space_(std::move(space)), judge_(std::move(judge)), progress_(std::move(progress)) {}

    Found run();

private:
    void first_look();
    Choice climb(Choice at);
    void look(const std::vector<Choice>& choices);
    void judge_round(const std::vector<Choice>& round);
    /// "": it is to be judged.
    std::string why_left_out(const Choice& choice) const;
    bool too_large(const Choice& choice) const;
    /// Of a rank's time on its processor's, at least: with what it waits for the pipeline, or for its turn.
    double stretch(const Choice& choice) const;
    double least_seconds(const Choice& choice) const;
    double worst_kept() const;
    Choice at_best(const Choice& choice) const;
    double promise(const Judged& judged) const;
    std::vector<Choice> promising() const;
    /// nullptr: not judged, or it does not fit.
    const Judged* fitting(const Choice& choice) const;
    std::vector<Choice> with_room(const std::vector<std::vector<Choice>>& beside) const;
    void find_best(Found& found) const;
    void find_edges(Found& found) const;

    SearchSpace space_;
    Judge judge_;
    Progress progress_;
    std::map<Choice, Judged> known_;
    std::vector<const Judged*> best_;  ///< of those that fit, the fastest first
    std::map<Choice, std::string> left_out_;
    int64_t left_ = 0;  ///< meshes to look at
    double rate_ = 0;   ///< the best of a rank so far, FLOP/s; recomputed ones count
};

}  // namespace orrery
