#include "../plugins/device/cpu/resolve.h"
#include "interpreter.h"

namespace orrery::test {

void run_reference(const KernelSpec& spec, std::span<const Tensor> operands) {
    kernels::Context context(1);
    cpu_device::resolve(spec, kernels::reference::table(), true)(context, operands);
}

}  // namespace orrery::test
