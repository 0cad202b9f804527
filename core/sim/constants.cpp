#include "sim/constants.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/error.h"

namespace orrery {

// clang-format off
Constants::Constants() : all_{
    // Links (for links.cpp and nccl_steps.cpp), fitted to published_collectives.csv; only nvlink.nvls.* differ by GPU.
    {"nvlink.ring", "part of NVLink's rate that rings, trees and messages reach", 0.80, 0.6, 1, 0.8},
    {"nvlink.nvls.hopper", "the same, sums and copies by the switch", 0.69, 0.5, 1, 0.68},
    {"nvlink.nvls.blackwell", "the same", 0.55, 0.5, 1, 0.59},
    {"pcie", "part of PCIe's rate that is reached; from no measurement", 0.8, 0.5, 1, 0.8},
    {"net.infiniband", "part of a NIC's rate that is reached", 0.94, 0.7, 1, 0.95},
    {"net.ethernet", "the same; from no measurement", 0.9, 0.6, 1, 0.9},
    {"net.efa", "the same", 0.84, 0.6, 1, 0.9},
    {"all_to_all", "rate of an all-to-all as a part of a ring's on the same links", 0.88, 0.5, 1, 1},
    {"ring.step_s", "a step of a ring inside a node, protocol Simple, seconds", 10e-6, 3e-6, 15e-6, 3.4e-6},
    {"nvls.fill", "rounds of chunks until the pipeline through the switch is full", 2, 0.5, 4, 2},
    // Kernels, fitted to published_rows.csv (bench/published --fit): the fraction of the dense peak that a large bf16
    // matrix product reaches in a training run, including the clock under load.
    {"matrix.A100-40G-SXM", "part of the dense bf16 peak that large products reach", 0.7678, 0.60, 0.92, 0.87},
    {"matrix.A100-80G-SXM", "the same", 0.7489, 0.60, 0.92, 0.87},
    {"matrix.H100-80G-SXM", "the same", 0.7008, 0.50, 0.85, 0.80},
    {"matrix.H100-96G-HBM2e 500W", "the same, of 989 TFLOP/s", 0.5545, 0.40, 0.80, 0.65},
    {"matrix.B200-HGX8", "the same", 0.7353, 0.45, 0.85, 0.775},
    {"matrix.GB200-NVL72", "the same", 0.6961, 0.45, 0.85, 0.744},
    {"matrix.GB300-NVL72", "the same", 0.85, 0.45, 0.85, 0.744},
    {"memory.share", "part of the memory's rated bandwidth that a streaming kernel reaches", 0.8, 0.80, 0.95, 0.85},
    {"product.ramp", "a tile's start and end, as elements of the contraction", 94.98, 0, 512, 128},
    {"product.eight_bit", "8-bit products: part of their peak, over that of bf16", 0.7362, 0.60, 1.0, 0.90},
    {"launch_s.eager", "seconds between kernels that the device does not hide", 10e-6, 0.5e-6, 10e-6, 3e-6},
    {"launch_s.compiled", "the same", 1.839e-6, 0.5e-6, 6e-6, 2e-6},
    {"launch_s.megatron", "the same", 6e-6, 0.5e-6, 6e-6, 2e-6},
    {"launch_s.unfused", "the same", 1.328e-6, 0.5e-6, 10e-6, 3e-6},
    {"launch_s.eight_bit", "the same", 1.088e-6, 0.5e-6, 6e-6, 3e-6},
    {"passes.eager", "bytes that kernels other than products move, over their operands' bytes", 4.496, 1.0, 6.0, 1.5},
    {"passes.compiled", "the same", 2, 0.8, 2.0, 1.0},
    {"passes.megatron", "the same", 2.5, 0.8, 2.5, 1.2},
    {"passes.unfused", "the same", 4.636, 1.0, 6.0, 1.5},
    {"passes.eight_bit", "the same", 0.8, 0.8, 3.0, 1.2},
    {"attention.eager", "flash attention: part of the rate of large products", 0.4512, 0.25, 0.90, 0.60},
    {"attention.compiled", "the same", 0.5571, 0.30, 0.90, 0.65},
    {"attention.megatron", "the same, megatron and eight_bit", 0.6379, 0.30, 0.95, 0.70},
    {"memory.context_gib", "GiB of a device that no tensor has: context, libraries, communicators", 5, 0.5, 5.0, 2.0},
    {"memory.allocator", "memory reserved over memory that tensors take at once", 1, 1.0, 1.25, 1.05},
} {}
// clang-format on

double Constants::of(std::string_view name) const {
    for (const Constant& constant : all_)
        if (constant.name == name) return constant.value;
    throw Error(fmt::format("unknown constant \"{}\": it is not in core/sim/constants.cpp", name), Fault::failed);
}

bool Constants::has(std::string_view name) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Constant& constant) { return constant.name == name; });
}

void Constants::forget_fit() {
    for (Constant& constant : all_) constant.value = constant.unfitted;
}

}  // namespace orrery
