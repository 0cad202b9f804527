#include "sim/cluster_prices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace orrery {

namespace {

constexpr std::array<std::string_view, 5> stacks = {"compiled", "eager", "megatron", "unfused", "eight_bit"};

double rate_or_0(const Accelerator& accelerator, const std::string& dtype) {
    const auto found = accelerator.dense_flops.find(dtype);
    return found == accelerator.dense_flops.end() ? 0 : found->second;
}

}  // namespace

KernelSoftware software_of(const std::string& name, const Constants& constants) {
    if (std::find(stacks.begin(), stacks.end(), name) == stacks.end())
        throw Error(fmt::format("unknown software \"{}\", expected one of: {}", name, fmt::join(stacks, ", ")));
    KernelSoftware software;
    const bool separate = name == "eager" || name == "unfused";
    software.launch_s = constants.of(name == "eager" ? "launch_s.eager" : "launch_s.queued");
    software.passes = constants.of(separate ? "passes.separate" : "passes.fused");
    software.ramp = constants.of("product.ramp");
    software.own_attention = !separate;
    software.attention_share = constants.of(software.own_attention ? "attention.own" : "attention.older");
    software.separate_attention = name == "unfused";
    software.eight_bit = name == "eight_bit";
    software.eight_bit_share = constants.of("product.eight_bit");
    return software;
}

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
                             const Constants& constants, const std::string& software, bool tf32)
    : cluster_(cluster), mapping_(mapping), like_(cluster.as_fast()), wires_(cluster, mesh, mapping, constants) {
    KernelSoftware stack = software_of(software, constants);
    stack.eight_bit &= multiplies_eight_bits(cluster);  // a job computes in one precision, so all kinds of nodes must
                                                        // support 8-bit matrix products
    for (const NodeKind& kind : cluster.kinds)
        kernels_.emplace_back(rates_of(kind.accelerator, constants, tf32), stack);
}

}  // namespace orrery
