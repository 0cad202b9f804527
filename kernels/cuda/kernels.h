// The interface between the CUDA device and its kernels: a spec goes in, a launchable kernel comes out.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/context.h"
#include "kernels/rules/spec.h"

namespace orrery::kernels::cuda {

using rules::Attribute;
using rules::Operand;
using rules::Spec;

class Prepared;

/// Alignment of scratch that cuBLASLt and cuDNN require.
constexpr std::int64_t scratch_alignment = 256;

/// One of several launches that the device issues together.
struct Joined {
    Prepared* kernel = nullptr;
    std::span<void* const> operands;
};

/// A spec resolved for one context.
class Prepared {
public:
    virtual ~Prepared() = default;
    /// Bytes of scratch of each launch, constant after prepare(). Scratch must be at a multiple of scratch_alignment,
    /// otherwise launch() throws Failure.
    virtual std::int64_t scratch_bytes() const { return 0; }
    /// Which kernel was chosen, and why: "cuBLASLt, fastest of 8", "cuDNN 9.19.0, engine 6, ...", "own kernel: ...",
    /// which is several times slower. "" when there is no choice.
    virtual std::string how() const { return ""; }
    /// Queues the work on context.stream() and returns. Operands: inputs, then outputs, all device memory. Does not
    /// allocate, read back or synchronize, so it may be captured in a graph and replayed with the same addresses.
    virtual void launch(Context& context, std::span<void* const> operands, void* scratch) = 0;

    /// Consecutive launches whose kernels return the same number above 0 may be issued in one call (AdamW over many
    /// tensors), unless one of them writes what another one reads or writes. 0: never. Such kernels have no scratch.
    virtual int joins() const { return 0; }
    /// Queues all of them. `batch[i].kernel` must be of the same class as this one.
    virtual void launch_joined(Context& context, std::span<const Joined> batch);
};

/// Every op that has a CUDA kernel.
std::vector<std::string> ops();

/// Why no GPU can run the spec with these kernels, "" when one can. Number and types of operands must be those of the
/// op's definition (wrong_operands of orrery/kernel.h). Calls no driver and no GPU.
std::string why_not(const Spec& spec);

/// Prepares such a spec. Throws Refused with the reason, or Failure. May time algorithms and store the results in
/// context.cache().
std::unique_ptr<Prepared> prepare(Context& context, const Spec& spec);

}  // namespace orrery::kernels::cuda
