#include "sim/cluster_prices.h"

namespace orrery {

namespace {

double rate_or_0(const Accelerator& accelerator, const std::string& dtype) {
    const auto found = accelerator.dense_flops.find(dtype);
    return found == accelerator.dense_flops.end() ? 0 : found->second;
}

}  // namespace

AcceleratorRates rates_of(const Accelerator& accelerator, const Constants& constants, bool tf32) {
    AcceleratorRates rates;
    rates.name = accelerator.name;
    rates.matrix_flops = rate_or_0(accelerator, "bf16");
    rates.f16_flops = rate_or_0(accelerator, "f16");
    rates.f32_flops = rate_or_0(accelerator, tf32 ? "tf32" : "f32");
    rates.f64_flops = rate_or_0(accelerator, "f64");
    rates.eight_bit_flops = rate_or_0(accelerator, "fp8");
    rates.memory_bytes_per_s = accelerator.memory_bytes_s;
    if (accelerator.multiprocessors > 0) rates.multiprocessors = accelerator.multiprocessors;
    rates.memory_share = constants.of("memory.share");
    if (const std::string name = "matrix." + accelerator.measured_as; constants.has(name))
        rates.matrix_share = constants.of(name);
    if (accelerator.matrix_share > 0) rates.matrix_share = accelerator.matrix_share;
    if (accelerator.matrix_share > 0 || !accelerator.measured_as.empty())
        rates.matrix_share *= constants.of("product.sustained");
    return rates;
}

ClusterPrices::ClusterPrices(const Cluster& cluster, const Mesh& mesh, const Mapping& mapping,
                             const Constants& constants, const SoftwareRun& software, bool tf32)
    : cluster_(cluster),
      mapping_(mapping),
      software_(software),
      like_(cluster.as_fast()),
      wires_(cluster, mesh, mapping, constants),
      sent_(software, mesh, wires_) {
    for (const NodeKind& kind : cluster.kinds)
        kernels_.emplace_back(rates_of(kind.accelerator, constants, tf32), kernels_of(software, constants));
}

}  // namespace orrery
