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

/// A configuration of the job (choice) with its predicted costs.
struct Judged {
    Choice choice;
    std::string why_not;  ///< first line of the reason why the choice does not run; "": it runs
    double step_s = 0;
    double computing_s = 0;  ///< computing time, mean over ranks
    double mfu = 0;
    int64_t memory_bytes = 0;          ///< bytes used by the rank with the smallest amount of memory left
    double memory_limit = 0;           ///< memory of the accelerator of rank `memory_rank` in bytes; 0: not checked
    int64_t memory_rank = -1;          ///< rank with the smallest memory left; -1: any, as accelerators are equal
    std::string binds;                 ///< what takes the largest share of the time besides computing, or "memory"
    std::vector<std::string> sources;  ///< where the predicted times come from, a line each; empty: all from formulas

    /// Bytes above the memory limit; negative: bytes left.
    double over() const { return static_cast<double>(memory_bytes) - memory_limit; }
    bool fits() const { return why_not.empty() && (memory_limit == 0 || over() <= 0); }
};

/// The reason in Found::left_out of configurations that cannot fit.
constexpr const char* no_room =
    "their parameter state does not fit, or their memory, derived from that with another ZeRO stage, does not";

/// Configurations that do not run or do not fit for the same reason.
struct Refused {
    Judged closest;  ///< the configuration closest to fitting; `why_not` is "" if it runs but does not fit
    int64_t count = 0;
};

struct Found {
    std::vector<Judged> best;      ///< configurations that fit, fastest first
    std::vector<Refused> refused;  ///< configurations that do not run or fit, by reason
    std::vector<Judged> all;       ///< all configurations that run, including those that do not fit
    int64_t compiled = 0;
    std::map<std::string, int64_t> left_out;  ///< number of configurations left out, by reason
    std::vector<std::string> edges;           ///< options of which the best value is at the border of the search space
    bool stopped = false;                     ///< the search was stopped before its end; this is what it had found
    int64_t left = 0;                         ///< if stopped: number of meshes that were still to be judged or refined

    int64_t pruned() const;
};

/// Searches for the fastest choices in rounds; the choices of a round are judged concurrently. A round depends only on
/// earlier rounds, so the number of threads does not affect the result.
///
///     1. every mesh with common options, made smaller until it fits (recomputation, a higher ZeRO stage), and with
///        more samples in a micro-batch
///     2. from the fastest meshes: one step in each option, then all steps that helped together, until none helps
///
/// The fastest ten meshes also try the best one's options, with and without ZeRO, and each is refined only if it is
/// near the best one with its best options so far. Choices are
/// left out without calling `judge` if their parameters' state or another ZeRO stage shows that they cannot fit, or if
/// they could not be among the best (the tenth, or a quarter slower than the first) even with kernels a twentieth
/// faster than any seen so far and no loss but the pipeline's bubble.
class Search {
public:
    /// Judges `choices` in any order and passes each result to `done` with its index. Returns after the last one, or
    /// earlier if the search is to stop.
    using Done = std::function<void(size_t place, Judged judged)>;
    using Judge = std::function<void(const std::vector<Choice>& choices, const Done& done)>;
    /// Called after each judged configuration, with the number of meshes left and the best configuration so far.
    using Progress = std::function<void(int64_t judged, int64_t left, const Judged* best)>;

    /// Returns whether to stop; called after each round.
    using Stop = std::function<bool()>;

    Search(SearchSpace space, Judge judge, Progress progress = {}, Stop stop = {})
        : space_(std::move(space)), judge_(std::move(judge)), progress_(std::move(progress)), stop_(std::move(stop)) {}

    Found run();

private:
    struct Stopped {};  ///< thrown when `stop_` returns true

    void search();
    void first_look();
    Choice climb(Choice at);
    void look(const std::vector<Choice>& choices);
    void judge_round(const std::vector<Choice>& round);
    /// Returns why a configuration is left out without being judged; "" if it has to be judged.
    std::string why_left_out(const Choice& choice) const;
    bool too_large(const Choice& choice) const;
    /// Lower bound of a rank's step time divided by its computing time: above 1 with bubbles or shared processors.
    double stretch(const Choice& choice) const;
    double least_seconds(const Choice& choice) const;
    /// Whether cp would only add messages: the same tp and pp with a smaller cp fits without recomputation and has no
    /// larger pipeline bubble, or does not run with any method.
    bool needless(const Choice& choice) const;
    double worst_kept() const;
    Choice at_best(const Choice& choice) const;
    double promise(const Judged& judged) const;
    std::vector<const Judged*> fastest_of_meshes() const;
    std::vector<Choice> promising() const;
    void more_samples();
    const Judged* fitting(const Choice& choice) const;
    std::vector<Choice> with_room(const std::vector<std::vector<Choice>>& beside) const;
    double over(const Choice& choice) const;
    std::optional<Choice> with_less_recomputed(const Choice& choice) const;
    void look_alike(const std::vector<Choice>& meshes);
    Choice fastest_of_mesh(const Choice& choice) const;
    void say_not_dividing(Found& found) const;
    void find_best(Found& found) const;
    void find_edges(Found& found) const;

    SearchSpace space_;
    Judge judge_;
    Progress progress_;
    Stop stop_;
    std::map<Choice, Judged> known_;
    std::vector<const Judged*> best_;
    std::map<Choice, std::string> left_out_;
    int64_t left_ = 0;  ///< number of meshes still to judge
    double rate_ = 0;   ///< highest FLOP/s of a rank so far, including recomputation
};

}  // namespace orrery
