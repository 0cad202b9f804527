// The emulated kernels, for sources that are compiled for the other build: a source has one ORRERY_BLOCKS.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/kernels.h"

namespace orrery::standin {

using KernelCall = std::function<void(kernels::Context&)>;

const kernels::Kernels& emulated_table();

/// Bytes of scratch that a call of the table takes.
std::int64_t emulated_scratch(int multiprocessors, const KernelCall& call);
/// Runs it now, with this scratch.
void emulated_run(int multiprocessors, const KernelCall& call, void* scratch, std::int64_t bytes);

void emulated_copy(kernels::Context& context, const void* from, void* to, std::int64_t bytes);

/// kernels/cuda/updates.h
struct EmulatedUpdate {
    kernels::AdamW constants;
    float *p, *m, *v;
    kernels::In g;
    const float *lr, *scale, *step;
    const std::uint8_t* apply;
    std::int64_t n;
};
void emulated_adamw(kernels::Context& context, const std::vector<EmulatedUpdate>& updates);

}  // namespace orrery::standin
