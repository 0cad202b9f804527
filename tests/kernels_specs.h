// Every op of the table at odd sizes, as specs with operands: what runs them differs (the emulator of thread blocks, a
// GPU), what is expected is the reference kernels' result in double.
#pragma once

#include <string>

#include "../plugins/device/cpu/resolve.h"
#include "kernels/cuda/kernels.h"
#include "kernels_compare.h"

namespace orrery::kernels::testing {

using cuda::Operand;
using cuda::Spec;
using Buffers = std::vector<Buffer>;

/// One launch. `out` holds what the outputs contain before: poison, or what is added to.
struct OpCase {
    Spec spec;
    Buffers in, out;
    std::string name() const { return spec.text(); }
    /// The type whose tolerance an output has: its own, or that of the first operand, to which losses in tiles round
    /// their logits on the way to outputs of f32.
    Type compared_as(size_t output) const;
};

/// Runs a spec on the inputs and writes the outputs.
using RunSpec = std::function<void(const Spec&, const Buffers& in, Buffers& out)>;

/// The same in the core's words, as a device gets it.
KernelSpec kernel_spec(const Spec& spec);

/// The reference kernels, through the CPU device's rules.
void run_reference(const Spec& spec, const Buffers& in, Buffers& out);

/// Every op that OpDefs give samples of, in every type that it runs in. A new op needs no more than those; the sizes
/// below are for kernels that work in blocks.
std::vector<OpCase> sample_cases(Source& source);
/// Cases of many sizes, with fresh numbers.
std::vector<OpCase> op_cases(Source& source);
/// Every op again, with operands of n elements, columns or rows; products of [m, k] and [k, n] alone.
std::vector<OpCase> size_cases(Source& source, i64 n);
std::vector<OpCase> product_cases(Source& source, i64 m, i64 n, i64 k);
/// A little more than the blocks that CPU kernels work in.
std::vector<OpCase> block_cases(Source& source);

/// Compares every case with the reference (f32 within 1e-5 of the norm, f16 1e-3, bf16 1e-2) and, bit by bit, with its
/// own repetition.
void check_cases(const RunSpec& run);
/// These alone, which were drawn from the source.
void check_cases(const RunSpec& run, const Source& source, const std::vector<OpCase>& cases);

}  // namespace orrery::kernels::testing
