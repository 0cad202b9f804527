// AdamW updates of many tensors, as host code passes them.
#pragma once

#include <span>

#include "kernels/cuda/call.h"

namespace orrery::kernels::ORRERY_BLOCKS {

/// One tensor of an update; see Kernels::adamw.
struct Update {
    AdamW constants;
    float *p, *m, *v;
    In g;
    const float *lr, *scale, *step;
    const std::uint8_t* apply;
    i64 n;
};

/// All updates, in as few launches as possible. None may read what another one writes.
void adamw_all(Call& call, std::span<const Update> updates);

}  // namespace orrery::kernels::ORRERY_BLOCKS
