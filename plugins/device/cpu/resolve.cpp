#include "resolve.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "../kernel_spec.h"
#include "target.h"

namespace orrery::cpu_device {

int64_t scratch_of(const KernelSpec& spec, const Launch& launch, int threads, kernels::Products products) {
    const kernels::rules::KernelRule* rule = kernels::rules::find_rule(spec.op);
    if (rule == nullptr || !rule->scratch) return 0;
    kernels::Context counting(threads);
    counting.only_count();
    counting.use(products);
    std::vector<Tensor> operands;
    // Never touched: the kernel is left where it asks for scratch.
    for (const auto* side : {&spec.inputs, &spec.outputs})
        for (const TensorType& type : *side) operands.push_back({&counting, type.dtype, type.shape});
    try {
        launch(counting, operands);
    } catch (const kernels::Context::Counted& counted) {
        return counted.bytes;
    }
    return 0;
}

int64_t scratch_of(const KernelSpec& spec, const Launch& launch, int threads) {
    int64_t most = 0;
    for (const kernels::Products products : kernels::all_products)
        most = std::max(most, scratch_of(spec, launch, threads, products));
    return most;
}

Launch resolve(const KernelSpec& spec, const kernels::Kernels& kernels, bool reference) {
    const kernels::rules::Spec said =
        kernel_spec(spec, "cpu", reference ? "" : "f64 needs device.cpu.reference = true");
    std::vector<kernels::rules::Tensor> operands;  // here, since a launch allocates nothing
    for (const auto* side : {&spec.inputs, &spec.outputs})
        for (const TensorType& type : *side) operands.push_back({nullptr, kernel_type(type.dtype), type.bytes()});
    try {
        return [run = kernels::rules::resolve(said, target(kernels)), operands](kernels::Context& context,
                                                                                std::span<const Tensor> given) mutable {
            for (size_t i = 0; i < operands.size(); ++i) operands[i].data = given[i].data;
            run(context, operands);
        };
    } catch (const kernels::rules::Refused& refused) {
        throw Error(std::string("device cpu: ") + refused.what());
    }
}

}  // namespace orrery::cpu_device
