#include "sim/constants.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/error.h"

namespace orrery {
namespace {

/// A rate that others measured, which no fit changes.
Constant measured(const char* name, const char* meaning, double value) {
    return {name, meaning, value, value, value, value};
}

}  // namespace

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
    // Kernels. What part of the dense peak the largest bf16 GEMM alone reaches was measured by others
    // (shared/data/hardware.csv: mamf_bf16_tflops) and is not fitted; GB300 has GB200's, and the H100 with 500 W has no
    // published rate.
    measured("matrix.A100-40G-SXM", "part of the dense bf16 peak that the largest GEMM alone reaches", 0.869),
    measured("matrix.A100-80G-SXM", "the same", 0.869),
    measured("matrix.H100-80G-SXM", "the same", 0.803),
    measured("matrix.H100-96G-HBM2e 500W", "the same, of 989 TFLOP/s; assumed", 0.65),
    measured("matrix.B200-HGX8", "the same", 0.776),
    measured("matrix.GB200-NVL72", "the same", 0.744),
    measured("matrix.GB300-NVL72", "the same", 0.744),
    // 1,573 MiB with one tensor on an A100 (bigscience-workshop/bigscience: chronicles-prequel.md).
    measured("memory.context_gib", "GiB of a device that no tensor has", 1.54),
    // Without a fit, `product.sustained` is what 697 sizes of matrices reach by the model of kernel_prices.cpp, over
    // the largest: 0.95 on A100 PCIe, 0.66 on B200 (MooreThreads/SimuMax@4dcaae513b:configs/system), and
    // `passes.separate` what kernels of llm-foundry's block move (mosaicml/llm-foundry@8c8dd48f72:
    // llmfoundry/models/layers/blocks.py).
    // Fitted to published_rows.csv and published_rows_2.csv (bench/published --fit).
    {"product.sustained", "part of that rate in a training run, with the clock under load", 0.8167, 0.7, 1, 0.80},
    {"memory.share", "part of the memory's rated bandwidth that a streaming kernel reaches", 0.9226, 0.80, 0.95, 0.85},
    {"product.ramp", "a tile's start and end, as elements of the contraction", 126.8, 0, 512, 128},
    {"product.eight_bit", "8-bit products: part of their peak, over that of bf16", 0.8872, 0.60, 1.0, 0.90},
    {"launch_s.eager", "seconds between kernels that the device does not hide", 6.428e-6, 0.5e-6, 10e-6, 3e-6},
    {"launch_s.queued", "the same, where the host is ahead", 6e-6, 0.5e-6, 6e-6, 2e-6},
    {"passes.separate", "bytes that kernels other than products move, over their operands' bytes", 2.924, 1, 6, 2.2},
    {"passes.fused", "the same", 0.8, 0.8, 2.5, 1.0},
    {"attention.older", "flash attention of Ampere: part of the rate of large products", 0.4762, 0.25, 0.90, 0.60},
    {"attention.own", "the same, of the accelerator itself", 0.5651, 0.30, 0.95, 0.70},
    {"memory.allocator", "memory reserved over memory that tensors take at once", 1.3, 1.0, 1.3, 1.1},
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
