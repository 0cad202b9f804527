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
    /// Sums once a step over axes other than data's (norms under sequence parallelism, tied params) run after all
    /// fragments; those over data come before them if they overlap with kernels (Megatron-LM's `finalize_model_grads`).
    bool sums_late = false;
    /// Data-parallel collectives do not overlap with kernels: params are gathered before the first fragment, gradients
    /// are reduced after the last product of all fragments.
    bool data_late = false;
    /// Kernels also wait for a pipeline's sends (Megatron-LM's 1F1B, DeepSpeed's).
    bool blocks_messages = false;
    bool gathers_f32 = false;   ///< params are sent in f32 and cast where used (autocast)
    bool reduces_bf16 = false;  ///< gradients are sent in bf16
    bool all_reduces = false;   ///< gradients are all-reduced although states are split (DeepSpeed's ZeRO-1)
    /// Separate launches add a micro-batch's gradients to their f32 sums and clear them (DeepSpeed's BF16_Optimizer,
    /// `update_hp_grads`); otherwise weight-gradient products accumulate (Megatron-LM's fused accumulation).
    bool adds_apart = false;
    bool cuts_all_params = false;  ///< states of params without a divisible dim are split, too: flat buffers
    /// Axes over which params and gradients are sent.
    std::vector<std::string> data = {"dp", "rep"};
};

/// The plan as software with this profile would have made it, for prices alone: its fingerprint is `for_prices_alone`
/// (plan/print.h), places and memory are those of the plan. Streams keep their order but for what goes behind all
/// fragments, on all ranks in one order. Linear in the stream.
Plan with_profile(Plan plan, const SoftwareProfile& profile);

}  // namespace orrery
