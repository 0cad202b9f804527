#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace orrery {

/// One way to run a job on a cluster.
struct Choice {
    int64_t pp = 1, dp = 1, tp = 1;
    int64_t samples = 1;            ///< of a micro-batch, on one member of dp
    int64_t zero = 0;               ///< -1: nobody knows
    std::string schedule = "1f1b";  ///< "": nobody knows
    int64_t chunks = 0;             ///< stages of a pipeline rank; 0: as many as the schedule needs
    bool sequence = false;
    std::string recompute = "none";  ///< "": nobody knows
    std::string mapping;             ///< axes, the innermost first; "": the mesh's own

    auto operator<=>(const Choice&) const = default;
    /// "interleaved x2"; "": there is no pipeline, or nobody knows
    std::string schedule_text() const;
    /// "pp=2 dp=8 tp=8 zero=1 interleaved x2"
    std::string text() const;
    /// Less where it does less beside the plain way: no pipeline, then its schedule, ZeRO stage, recomputation, a split
    /// sequence, small micro-batches.
    std::tuple<int64_t, int64_t, size_t, bool, int64_t> added() const;
};

/// Bytes that all ranks have of a model together where nothing is there twice. All gradients are there at once, as
/// micro-batches and clipping need them.
struct StateBytes {
    double params = 0, gradients = 0, optimizer = 0;
    double all() const { return params + gradients + optimizer; }
};

/// What is searched, and what is known before anything is compiled.
struct SearchSpace {
    int64_t ranks = 1;
    int64_t batch = 1;  ///< sequences of a step
    int64_t most_tp = 8, most_pp = 1;
    /// Mesh axes and options that are varied; the others stay as in `start`.
    bool varies_mesh = true, varies_samples = true, varies_zero = true, varies_schedule = true, varies_sequence = true,
         varies_recompute = true, varies_mapping = true;
    int64_t microbatches = 0;  ///< of every choice, which samples follow from; 0: as samples say
    Choice start;
    double memory_limit = 0;  ///< bytes of the rank that has most; 0: not judged
    StateBytes state;
    double flops = 0, rate = 0;  ///< of a step; of one rank, that nothing exceeds
    double turns = 1;            ///< ranks that take turns on a processor: where one waits another computes
    double faster = 1.05;        ///< kernels may run at so many times the best rate that was seen
    double near = 1.08;          ///< a mesh that is slower than the best by more is looked at no closer
    double alike = 0;            ///< of a step: forecasts that differ by less may be in either order in truth
    size_t climbs = 10;          ///< meshes that are looked at closely, where they come near the fastest
    size_t kept = 10;            ///< the best that are told

    int64_t micros(const Choice& choice) const { return batch / (choice.dp * choice.samples); }
    /// Whether micro-batches are whole, and the schedule takes their number.
    bool whole(const Choice& choice) const;
    /// Every mesh with the options that most take.
    std::vector<Choice> meshes() const;
    /// The same with less memory: recomputation, then a higher ZeRO stage.
    std::optional<Choice> smaller(const Choice& choice) const;
    /// All that are one step away in one option, by option.
    std::vector<std::vector<Choice>> beside(const Choice& choice) const;
    /// A mesh with the options of another choice, as far as it can have them.
    Choice like(const Choice& mesh, const Choice& options) const;
};

/// Bytes of a model's state on a rank, on average over stages: its part by tp and pp, and of that by ZeRO over dp: the
/// optimizer's (1), gradients, too (2), params, too (3). 0 where nobody knows how it is split.
double state_bytes(const StateBytes& state, const Choice& choice);
/// Part of a step that its pipeline loses at least: (p-1)/(v m) and so on over the work; 0 of a schedule that is none
/// of the library's.
double bubble(const Choice& choice, int64_t micros);

/// The most samples of a micro-batch and stages of a pipeline rank that are looked at.
constexpr int64_t most_samples = 16, most_chunks = 4;

}  // namespace orrery
