#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace orrery {

/// One configuration of a training job: mesh, micro-batches, ZeRO stage, pipeline schedule, recomputation, mapping.
struct Choice {
    int64_t pp = 1, dp = 1, cp = 1, tp = 1;
    int64_t samples = 1;            ///< sequences per micro-batch on each member of dp and rep
    int64_t zero = 0;               ///< ZeRO stage; -1: unknown
    std::string schedule = "1f1b";  ///< pipeline schedule; "": unknown
    int64_t chunks = 0;             ///< stages per pipeline rank; 0: as many as the schedule needs
    bool sequence = false;
    std::string recompute = "none";  ///< what is recomputed; "": unknown
    std::string mapping;             ///< mesh axes, innermost first; "": the mesh's own order
    std::string context, order;      ///< method of context parallelism and order of a row's tokens; "": unknown
    /// Number of the ranks of dp that share the experts: the mesh has axes dp, of dp / ep ranks, and ep.
    int64_t ep = 1;
    int64_t recompute_layers = 0;  ///< number of layers that are recomputed; 0: all
    int64_t rep = 1;  ///< ranks along the axis that splits the batch outside dp, not ZeRO (HSDP); not varied

    auto operator<=>(const Choice&) const = default;
    /// Text of the schedule: "interleaved x2"; "": no pipeline, or unknown.
    std::string schedule_text() const;
    /// Text of method and order of context parallelism: "ring zigzag"; "": cp is 1, or unknown.
    std::string context_text() const;
    /// Text of recomputation: "none", "24 layers", "gelu,layernorm"; "": unknown.
    std::string recompute_text() const;
    /// Text of the configuration: "pp=2 dp=8 tp=8 zero=1 interleaved x2".
    std::string text() const;
    /// Number of ranks over which ZeRO splits: they train with the same part of the params, in one member of `rep`.
    int64_t copies() const { return dp * cp; }
    /// How far the configuration is from the simplest one: counts cp, ep, pipeline, schedule, ZeRO stage,
    /// recomputation, split sequence and micro-batch size. Smaller is simpler.
    std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, bool, int64_t> added() const;
};

/// A way to recompute activations in the backward pass, and what it frees.
struct Recomputation {
    std::string kinds = "none";  ///< value of the script's option: "none", kinds of op as in "gelu,layernorm", "all"
    int64_t layers = 0;          ///< number of layers that are recomputed; 0: all
    double freed = 0;            ///< bytes that are not saved for one sequence, on all ranks together
    double seconds = 0;          ///< time of recomputing one sequence on one rank
    double factor = 1;           ///< lower bound of the time of all products, over that without recomputation

    std::string text() const { return layers > 0 ? std::to_string(layers) + " layers" : kinds; }
};

/// Bytes of a model's state, each value counted once over all ranks. All gradients exist at the same time, as
/// micro-batches and clipping require.
struct StateBytes {
    double params = 0, gradients = 0, optimizer = 0;
    double experts = 0;  ///< fraction of these bytes that are of experts, which ep splits
    double all() const { return params + gradients + optimizer; }
};

/// The configurations that a search covers, and what is known about the job before compiling.
struct SearchSpace {
    int64_t ranks = 1;
    int64_t batch = 1;  ///< sequences per step
    int64_t most_tp = 8, most_pp = 1, most_cp = 1, most_ep = 1;
    bool has_cp = false;                ///< the script uses an axis cp
    bool has_recompute_layers = false;  ///< the script has an option for the number of recomputed layers
    int64_t experts = 0;                ///< number of experts that the script splits over an axis ep; 0: none
    /// Mesh axes and options that the search varies; the others have their values in `start`.
    bool varies_mesh = true, varies_samples = true, varies_zero = true, varies_schedule = true, varies_sequence = true,
         varies_recompute = true, varies_mapping = true;
    /// Methods of context parallelism, each with an order of tokens, that the script has; fewer than two: not varied.
    std::vector<std::pair<std::string, std::string>> contexts;
    /// What to recompute, by bytes freed; the first is nothing.
    std::vector<Recomputation> recomputes = {{}, {"all", 0, 0, 0, 4.0 / 3}};
    int64_t microbatches = 0;  ///< number of micro-batches of every configuration; 0: Choice::samples determines it
    Choice start;
    double memory_limit = 0;  ///< max memory of any rank in bytes; 0: not checked
    StateBytes state;
    double flops = 0, rate = 0;  ///< `flops`: FLOPs of a step; `rate`: upper bound of a rank's FLOP/s
    double bytes_s = 0;          ///< a rank's memory bandwidth
    double turns = 1;            ///< number of ranks that take turns on a processor: one computes while another waits
    double faster = 1.05;        ///< factor by which other kernels may be faster than the fastest seen so far
    double near = 1.08;          ///< meshes slower than the best by more than this factor are not refined
    double alike = 0;            ///< differences between step times below this fraction of a step are not significant
    size_t climbs = 10;          ///< max number of meshes whose options are refined
    size_t kept = 10;            ///< number of best configurations reported

    int64_t micros(const Choice& choice) const { return batch / (choice.rep * choice.dp * choice.samples); }
    /// Whether a configuration's number of micro-batches is an integer and valid for its schedule.
    bool whole(const Choice& choice) const;
    /// Returns a configuration with the next larger ep, or the next smaller one, that divides experts and ranks;
    /// nullopt if there is none.
    std::optional<Choice> other_ep(const Choice& choice, bool larger) const;
    /// Returns a configuration for each possible mesh; varied options have defaults (1 sample, ZeRO-1, 1f1b). A mesh
    /// that does not vary has, as far as they are valid, several: with more samples, without ZeRO, and as configured.
    std::vector<Choice> meshes() const;
    /// Returns the meshes with a number of ranks along dp that does not divide the batch.
    std::vector<Choice> not_dividing() const;
    /// Returns a configuration that needs less memory (a larger ep, recomputation, a higher ZeRO stage), by about
    /// `over` bytes a rank if recomputation can; nullopt if there is none.
    std::optional<Choice> smaller(const Choice& choice, double over = 0) const;
    /// Estimates the bytes that a rank does not save because of recomputation.
    double freed(const Choice& choice) const;
    /// Returns the place of a configuration's recomputation in `recomputes`, or their number if it is not among them.
    size_t recompute_place(const Choice& choice) const;
    void set_recompute(Choice& choice, size_t place) const;
    /// Min time of products with a configuration's recomputation, over that without.
    double factor(const Choice& choice) const;
    /// Returns a configuration with the method of context parallelism after that of `choice`; nullopt if there is none.
    std::optional<Choice> other_context(const Choice& choice) const;
    /// Returns all configurations that differ from `choice` by one step in one option, grouped by option.
    std::vector<std::vector<Choice>> beside(const Choice& choice) const;
    /// Returns a configuration with the mesh of `mesh` and those options of `options` that are valid for the mesh.
    Choice like(const Choice& mesh, const Choice& options) const;

private:
    /// Returns all meshes, with the other options as in `start`.
    std::vector<Choice> all_meshes() const;
};

/// Mean bytes of a model's state per rank. tp and pp split the whole state, ep that of experts; ZeRO also splits over
/// the ranks with the same params the optimizer state (stage 1), gradients (2) and params (3). 0 if the stage is
/// unknown.
double state_bytes(const StateBytes& state, const Choice& choice);
/// Min time lost to the pipeline bubble, as a fraction of the computing time: (p-1)/m for 1f1b with p pipeline ranks
/// and m micro-batches, less for other schedules; 0 for schedules that are not in the library.
double bubble(const Choice& choice, int64_t micros);

/// Limits of the search: max samples per micro-batch, and max stages per pipeline rank.
constexpr int64_t most_samples = 16, most_chunks = 4;

}  // namespace orrery
