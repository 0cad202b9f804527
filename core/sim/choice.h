#pragma once
#include <cstdint>
#include <optional>
#include <string>
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
    /// "pp=2 dp=8 tp=8 zero=1 interleaved x2"
    std::string text() const;
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

/// Bytes that the state of `parameters` takes on a rank at least: landscape.md's 18/N and so on, of mixed precision. 0
/// where nobody knows how it is split.
double state_bytes(double parameters, const Choice& choice);
/// Part of a step that its pipeline loses at least: (p-1)/(v m) and so on over the work; 0 of a schedule that is none
/// of the library's.
double bubble(const Choice& choice, int64_t micros);

/// The most samples of a micro-batch and stages of a pipeline rank that are looked at.
constexpr int64_t most_samples = 16, most_chunks = 4;

}  // namespace orrery
