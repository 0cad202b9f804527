// When cuDNN's fused attention is used, and in which forms, by sizes, chips and versions only; calls no library.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.h"

namespace orrery::kernels::cuda {

/// What cuDNN's engines depend on, apart from sizes. version: cudnnGetVersion(), e.g. 91900.
struct DnnMachine {
    std::size_t version = 0;
    int major = 0, minor = 0;  ///< compute capability
};

/// "9.19.0".
std::string dnn_version_text(std::size_t version);

/// Why cuDNN cannot compute this attention, "" when it can.
std::string dnn_refusal(const Attention& s, Type type, bool backward, bool deterministic, const DnnMachine& machine);

/// The score of a key that a query does not see.
float dnn_unseen(std::size_t version);

enum class DnnForm {
    forward,
    stored,  ///< backward: the slope of the scores may be in the workspace (quadratic in time, fixed order of sums)
    summed,  ///< backward: the gradient of q is summed in f32 in scratch, tile by tile (linear in time)
};

/// One way to compute an attention by cuDNN: the same plan for every slice of `batch` x `heads`.
struct DnnAttempt {
    DnnForm form = DnnForm::forward;
    std::int64_t batch = 0, heads = 0, groups = 0;            ///< of a slice; heads are split only with a batch of 1
    int engine = -1;                                          ///< -1: those of cuDNN's heuristics
    std::vector<std::pair<std::string, std::int64_t>> knobs;  ///< knobs of `engine`, e.g. {"stages", 4}

    std::int64_t slices(const Attention& s) const { return s.batch / batch * (s.heads / heads); }
};

/// Limit of cuDNN's scratch, by which slices are made: four times the bytes of q, k, v and o, at least 128 MiB, and a
/// little more. Linear in time. Few slices are faster: on an H200 the gradient of 32 x 12 heads of 1024 x 64 took 0.58
/// ms whole, 0.64 in two and 0.88 in eight.
std::int64_t dnn_most_scratch(const Attention& s);

/// Bytes of the slope of a slice's scores, in tiles of 64 x 128.
std::int64_t dnn_slope_bytes(std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys);

/// The attempts, best first. With `deterministic` only those that repeat their bits.
std::vector<DnnAttempt> dnn_attempts(const Attention& s, bool backward, bool deterministic, const DnnMachine& machine);

}  // namespace orrery::kernels::cuda
