// The seam between the CUDA device and its kernels: a spec goes in, something that can be launched comes out.
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

/// Of scratch: what cuBLASLt and cuDNN ask for.
constexpr std::int64_t scratch_alignment = 256;

/// One launch of several that the device hands over together.
struct Joined {
    Prepared* kernel = nullptr;
    std::span<void* const> operands;
};

/// A spec resolved for one context.
class Prepared {
public:
    virtual ~Prepared() = default;
    /// Bytes of scratch of each launch, at a multiple of scratch_alignment: launch() throws Failure elsewhere. Known
    /// after prepare() and fixed.
    virtual std::int64_t scratch_bytes() const { return 0; }
    /// Whose kernel it is where there is a choice, and why: "cuBLASLt, fastest of 8", "cuDNN 9.19.0,
    /// engine 6, ...", "own kernel: ...". Where "own kernel" is in it, that is several times slower. "": ours alone.
    virtual std::string how() const { return ""; }
    /// Queues the work on context.stream() and returns. Operands: inputs, then outputs, all device memory. Allocates
    /// nothing, reads nothing back, synchronizes nothing: it may be captured in a graph and replayed with the same
    /// addresses.
    virtual void launch(Context& context, std::span<void* const> operands, void* scratch) = 0;

    /// Consecutive launches whose kernels give the same number above 0 may come in one call (AdamW over many tensors),
    /// as long as none of them writes what another one reads or writes. 0: never. Such kernels have no scratch.
    virtual int joins() const { return 0; }
    /// Queues all of them. `batch[i].kernel` are Prepared of the same kind as this one.
    virtual void launch_joined(Context& context, std::span<const Joined> batch);
};

/// Every op that has a CUDA kernel.
std::vector<std::string> ops();

/// "" when a build of these kernels can run the spec, whose operands are as many and of such types as the op's
/// definition says (wrong_operands of orrery/kernel.h), on some GPU; otherwise the reason. Asks no driver and no GPU.
std::string why_not(const Spec& spec);

/// Of such a spec, too. Throws Refused with the reason, or Failure. May time algorithms and keep what it finds in
/// context.cache().
std::unique_ptr<Prepared> prepare(Context& context, const Spec& spec);

}  // namespace orrery::kernels::cuda
