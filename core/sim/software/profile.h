#pragma once
#include <string>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// How other training software runs a step, where it differs from a plan of Orrery.
struct SoftwareProfile {
    /// Kernels and messages wait only for what they read, not for reuse of memory: an allocator keeps buffers of
    /// messages in flight (PyTorch's `record_stream`).
    bool keeps_memory = false;
    /// Sums over axes other than data's (norms under sequence parallelism, tied params) run once a step, after all
    /// fragments; sums over data axes precede them if they overlap with kernels (Megatron-LM's `finalize_model_grads`).
    bool sums_late = false;
    bool gradients_late = false;  ///< gradients are reduced after the last matrix product of all fragments
    bool params_late = false;     ///< kernels wait for all params that are gathered before the first fragment
    /// Kernels also wait for the sends of a pipeline (Megatron-LM's 1F1B, DeepSpeed's).
    bool blocks_messages = false;
    /// They do so after a forward and a backward pass, not between them (Megatron-LM's interleaved schedule:
    /// `send_forward_backward_recv_forward_backward`).
    bool sends_in_pairs = false;
    bool gathers_f32 = false;    ///< params are sent in f32 and cast where used (autocast)
    bool gathers_8_bit = false;  ///< params are sent in 8 bits
    bool reduces_bf16 = false;   ///< gradients are sent in bf16
    bool all_reduces = false;    ///< gradients are all-reduced although states are split (DeepSpeed's ZeRO-1)
    /// Separate launches add a micro-batch's gradients to their f32 sums and clear them (DeepSpeed's BF16_Optimizer,
    /// `update_hp_grads`); otherwise weight-gradient products accumulate (Megatron-LM's fused accumulation).
    bool adds_apart = false;
    bool cuts_all_params = false;  ///< states of params without a divisible dim are split, too, as in flat buffers
    /// Blocks that are recomputed run whole again, the last matrix product included (Megatron-LM's
    /// `CheckpointFunction`).
    bool recomputes_whole = false;
    /// Params and gradients are sent as lists of each rank's parts, which separate launches copy (nanotron's ZeRO-1).
    /// Bytes of gradients in a message; 0: parts are not copied.
    int64_t copies_parts = 0;
    /// Axes over which params and gradients are sent.
    std::vector<std::string> data = {"dp", "rep", "ep"};
};

/// Changes a plan to what software with this profile would run. The result serves only for prices: its fingerprint is
/// `for_prices_alone` (plan/print.h), and memory stays that of the original plan. Streams keep their order, except for
/// work that moves after all fragments, in the same order on all ranks. Linear in the stream.
Plan with_profile(Plan plan, const SoftwareProfile& profile);

}  // namespace orrery
