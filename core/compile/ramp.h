#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace orrery {

/// Settings of a batch that grows at the start of training: from `start` sequences per step in steps of `increment` to
/// the full batch, as in Megatron-LM. Each size lasts for an equal share of the first `samples` sequences.
struct BatchRamp {
    int64_t start = 0;  ///< sequences in the first step; 0: no ramp, every step has the full batch
    int64_t increment = 0;
    int64_t samples = 0;

    bool operator==(const BatchRamp&) const = default;
};

/// The batch of every step, and which samples it has. Both depend only on full batch and ramp, so a run can resume at
/// any step. Steps count from 1, samples from 0.
class BatchSizes {
public:
    BatchSizes() = default;
    /// Throws Error if `full` is not `start` plus a multiple of `increment`.
    explicit BatchSizes(int64_t full, const BatchRamp& ramp = {});

    int64_t full() const { return stages_.empty() ? 0 : stages_.back().batch; }
    int64_t batch(int64_t step) const { return stage(step).batch; }
    /// The number of samples drawn before a step. Throws Error if it exceeds 2^63 - 1.
    int64_t samples_before(int64_t step) const;
    /// All batch sizes, ascending; the last is the full batch.
    std::vector<int64_t> sizes() const;
    /// The batch sizes as text, "4 from step 1, 8 from step 26, 16 from step 39".
    std::string text() const;

private:
    struct Stage {
        int64_t batch = 0, step = 1, sample = 0;  ///< its batch, first step, and first sample
    };
    const Stage& stage(int64_t step) const;

    std::vector<Stage> stages_;
};

}  // namespace orrery
