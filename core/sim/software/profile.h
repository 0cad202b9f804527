#pragma once
#include <string>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// What other training software does otherwise than a plan of this project.
struct SoftwareProfile {
    /// Kernels and messages wait for what they read, and not because a plan uses a place again: an allocator keeps what
    /// is on its way (PyTorch's, `record_stream`).
    bool keeps_memory = false;
    /// Sums over axes other than data's that run once a step (norms under sequence parallelism, tied params) begin
    /// behind all fragments, those over data before them where they go beside kernels (Megatron-LM's
    /// `finalize_model_grads`).
    bool sums_late = false;
    /// Data parallelism beside no kernel: params come before the first fragment, gradients go when the last product of
    /// all fragments is done.
    bool data_late = false;
    /// Kernels wait for what a pipeline sends as well (Megatron-LM's 1F1B, DeepSpeed's).
    bool blocks_messages = false;
    bool gathers_f32 = false;   ///< params travel in f32, and are cast where they are used (autocast)
    bool reduces_bf16 = false;  ///< gradients travel in bf16
    bool all_reduces = false;   ///< gradients are summed whole though states are split (DeepSpeed's ZeRO-1)
    /// Gradients of a micro-batch are added to their f32 sums by launches of their own, and cleared (DeepSpeed's
    /// BF16_Optimizer, `update_hp_grads`); else products of weight gradients add (Megatron-LM's fused accumulation).
    bool adds_apart = false;
    bool cuts_all_params = false;  ///< states of params that no dim of which divides are split, too: flat buffers
    /// Axes over which params and gradients go.
    std::vector<std::string> data = {"dp", "rep"};
};

/// The plan as software with this profile would have made it, for prices alone: its fingerprint is `for_prices_alone`
/// (plan/print.h), places and memory are those of the plan. Streams keep their order but for what goes behind all
/// fragments, on all ranks in one order. Linear in the stream.
Plan with_profile(Plan plan, const SoftwareProfile& profile);

}  // namespace orrery
