#pragma once
#include <memory>
#include <optional>

#include "run/data.h"
#include "run/executor.h"
#include "run/session.h"

namespace orrery {

/// Fills the data inputs ("tokens", "targets") of a program for this rank: each holder reads its own part of each
/// sample, nobody scatters. One block per micro-batch, in order.
class Feed {
public:
    /// Throws Error as check_inputs does.
    Feed(const Program& program, const Mesh& mesh, int64_t rank, const Dataset& data);

    /// Host bytes for the global samples [first, first + batch), one buffer per data input.
    void fill(Split split, int64_t first, Prefetch::Batch& batch) const;
    void upload(Session& session, Executor& executor, const Prefetch::Batch& batch) const;
    int64_t batch() const { return batch_; }

private:
    struct Part {
        int64_t sample, token;  ///< offsets in the global [batch, seq]
        int64_t samples, tokens;
    };

    const Dataset& data_;
    ValueId tokens_ = none, targets_ = none;
    int64_t batch_ = 0;
    std::vector<Part> parts_;  ///< one per micro-batch
};

/// Throws Error at an input of a train step that nothing fills: the data source has i32[batch,seq] "tokens" and
/// "targets", the host "step" and "seed".
void check_inputs(const Program& program);

/// The seed word of a step: the same on every rank and mesh.
uint32_t step_seed(uint64_t run_seed, int64_t step);
/// Sets "step" (f32) and "seed" (u32), where the program has them.
void set_step(Session& session, Executor& executor, const Program& program, uint64_t run_seed, int64_t step);

}  // namespace orrery
