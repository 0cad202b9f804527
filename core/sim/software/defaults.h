#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/config.h"

namespace orrery {

/// What training software does unless a run says otherwise: a file of configs/software (its README.md explains the
/// keys).
struct SoftwareDefaults {
    /// What "selective" recomputation is: the core of attention, cheap ops and every second matrix product, or every
    /// second block.
    enum class Selective : uint8_t { core, ops, every_second };
    /// How the loss over the vocabulary runs: in one kernel, in those of PyTorch over f32 logits, or in one for each
    /// step of Megatron-LM's over f32 logits.
    enum class Loss : uint8_t { fused, torch, separate };
    /// Type of gradients as they are summed over data axes.
    enum class Gradients : uint8_t { f32, bits_16, f32_of_bf16 };
    enum class Launches : uint8_t { eager, queued };
    /// Which gradients stay in memory for the whole step.
    enum class HeldGradients : uint8_t { as_summed, bits_16, f32_and_16_bits, sharded };
    /// What published peaks count.
    enum class Peak : uint8_t { allocated, reserved, device };

    std::string name;  ///< of the file, without .toml
    /// Texts of which one must be in a run's description, parts joined by " + " all of them; "" is in each.
    std::vector<std::string> matches;

    bool splits_sequence = false;    ///< sequence parallelism where tp > 1
    bool chunks_tp = false;          ///< collectives of tp in chunks next to their matrix products
    int64_t pipelined_samples = 0;   ///< sequences of a micro-batch in recipes with a pipeline; 0: no recipe says it
    bool scatters_messages = false;  ///< stages send 1/tp of a whole activation, which the receiver's ranks gather
    bool overlaps_stages = false;    ///< messages of interleaved stages overlap with kernels
    bool overlaps_1f1b = false;      ///< those of other schedules do, too
    Selective selective = Selective::core;
    bool separate_attention = false, older_attention = false;
    Loss loss = Loss::fused;
    bool separate_elementwise = false;
    Launches launches = Launches::queued;
    bool f32_params = false;
    Gradients gradients = Gradients::f32;
    bool eight_bit_params = false;  ///< params are gathered in 8 bits where matrix products are
    bool casts_each_use = false;    ///< weights of 8-bit matrix products are cast in each micro-batch
    bool overlaps_gradients = false, overlaps_params = false;
    bool all_reduces = false;       ///< gradients are summed whole though states are split
    bool recomputes_whole = false;  ///< recomputed blocks run to their end, though nothing reads their last products
    bool copies_parts = false;      ///< launches copy each data parallel rank's part of params and gradients
    bool stages_by_cost = false;    ///< stages of equal cost, that of the head included, not of equally many blocks
    bool adds_apart = false;        ///< launches of their own add gradients of micro-batches
    /// Elements of a message of flat gradients or params, at least so many for each rank of dp; 0: as large as a rank's
    /// (flat) or a unit's (not flat).
    int64_t message_elements = 0, message_elements_a_rank = 0;
    bool flat = false;  ///< gradients and params are in flat buffers
    HeldGradients held_gradients = HeldGradients::as_summed;
    bool gathers_again = false;  ///< GEMMs' inputs that tp gathers are gathered again in the backward pass, not saved
    Peak peak = Peak::reserved;
    /// Memory is placed as in Orrery's plan, not by an allocator ([tensors]).
    bool planned = false;
};

/// Reads a file of configs/software. Throws Error at file:line for a key that is missing, unknown or without a source,
/// and for a word that is not one of the key's.
SoftwareDefaults software_defaults(const std::string& name, Config& file);
/// Throws Error if two have the same text among `matches`.
void check_matches(const std::vector<SoftwareDefaults>& all);
/// Returns the one with the longest of its `matches` in `text`, which is in lower case. Throws Error if there is none.
const SoftwareDefaults& software_in(const std::vector<SoftwareDefaults>& all, std::string_view text);

}  // namespace orrery
