#include "sim/constants.h"

#include <fmt/format.h>

#include <algorithm>

#include "orrery/error.h"

namespace orrery {

// clang-format off
Constants::Constants() : all_{
    // name, meaning, value, least, most, unfitted
    // Wires (links, nccl_steps): fitted to published_collectives.csv; all accelerators share them but two.
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
} {}
// clang-format on

double Constants::of(std::string_view name) const {
    for (const Constant& constant : all_)
        if (constant.name == name) return constant.value;
    throw Error(fmt::format("there is no constant \"{}\" in core/sim/constants.cpp", name), Fault::failed);
}

bool Constants::has(std::string_view name) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Constant& constant) { return constant.name == name; });
}

void Constants::forget_fit() {
    for (Constant& constant : all_) constant.value = constant.unfitted;
}

}  // namespace orrery
