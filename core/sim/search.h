#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace orrery {

/// One way to run a job on a cluster.
struct Choice {
    int64_t pp = 1, dp = 1, tp = 1;
    int64_t samples = 1;  ///< of a micro-batch, on one member of dp
    int64_t zero = 0;
    std::string schedule = "1f1b";
    int64_t chunks = 0;  ///< stages of a pipeline rank; 0: as many as the schedule needs
    bool sequence = false;
    std::string recompute = "none";
    std::string mapping;  ///< axes, the innermost first; "": the mesh's own

    auto operator<=>(const Choice&) const = default;
};

/// What a choice comes to.
struct Judged {
    Choice choice;
    std::string why_not;  ///< "": it runs; the first line of what is wrong with it
    double step_s = 0;
    double computing_s = 0;  ///< of a rank, on average
    double mfu = 0;
    int64_t memory_bytes = 0;  ///< of the rank that takes most
    std::string binds;         ///< what takes most of the time beside computing, or "memory"
};

/// What is searched, and what is known before anything is compiled.
struct SearchSpace {
    int64_t ranks = 1;
    int64_t batch = 1;  ///< sequences of a step
    int64_t most_tp = 8, most_pp = 1;
    /// Mesh axes and options that are varied; the others stay as in `start`.
    bool varies_mesh = true, varies_samples = true, varies_zero = true, varies_schedule = true, varies_sequence = true,
         varies_recompute = true, varies_mapping = true;
    Choice start;
    double memory_limit = 0;     ///< bytes of a rank; 0: not judged
    double parameters = 0;       ///< of the model
    double flops = 0, rate = 0;  ///< of a step; of one rank, that nothing exceeds
    size_t climbs = 6;           ///< meshes that are looked at closely
    size_t kept = 10;            ///< the best that are told
};

struct Found {
    std::vector<Judged> best;    ///< that fit, the fastest first
    std::vector<Judged> failed;  ///< of those that do not run or fit: the one of each reason that is closest
    int64_t compiled = 0, pruned = 0;
    std::vector<std::string> edges;  ///< where the best lies on the border of what was searched
};

/// Looks for the fastest choices. Deterministic: every mesh with usual options first, each until it fits (ZeRO up,
/// recomputation on), then the best meshes option by option until nothing is faster. Left out, without `judge`: what
/// cannot fit by its parameters' state alone, and what could not be among the best (the tenth, a quarter slower than
/// the first) if its kernels ran a twentieth faster than any seen so far and nothing but the pipeline's own bubble were
/// lost. `progress`: after each choice, with the best so far.
class Search {
public:
    using Judge = std::function<Judged(const Choice&)>;
    using Progress = std::function<void(int64_t judged, int64_t left, const Judged* best)>;

    Search(SearchSpace space, Judge judge, Progress progress = {})
        : space_(std::move(space)), judge_(std::move(judge)), progress_(std::move(progress)) {}

    Found run();

    /// Bytes that the state of `parameters` takes on a rank at least: landscape.md's 18/N and so on, of mixed
    /// precision.
    static double state_bytes(double parameters, const Choice& choice);
    /// Part of a step that its pipeline loses at least: (p-1)/(v m) and so on over the work.
    static double bubble(const Choice& choice, int64_t micros);
    int64_t micros(const Choice& choice) const { return space_.batch / (choice.dp * choice.samples); }
    /// Whether micro-batches are whole, and the schedule takes their number.
    bool whole(const Choice& choice) const;

private:
    std::vector<Choice> meshes() const;
    std::vector<std::vector<Choice>> beside(const Choice& choice) const;
    Choice climb(Choice at);
    std::optional<Choice> smaller(const Choice& choice) const;
    const Judged* look(const Choice& choice);
    double least_seconds(const Choice& choice) const;
    double worst_kept() const;
    void find_edges(Found& found) const;
    std::vector<const Judged*> fitting() const;
    bool fits(const Judged& judged) const;

    SearchSpace space_;
    Judge judge_;
    Progress progress_;
    std::map<Choice, Judged> known_;
    std::map<Choice, bool> pruned_;
    int64_t left_ = 0;
    double rate_ = 0;  ///< the best of a rank so far, FLOP/s; recomputed ones count
};

}  // namespace orrery
