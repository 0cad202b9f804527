#pragma once

#include "kernels/cuda/rules.h"

namespace orrery::kernels::ORRERY_BLOCKS {

Launch own_attention(const Attention& sizes);
Launch own_attention_grad(const Attention& sizes);

}  // namespace orrery::kernels::ORRERY_BLOCKS
