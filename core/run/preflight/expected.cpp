#include "run/preflight/expected.h"

#include <algorithm>

namespace orrery {
namespace {

/// Figures of vendors' data sheets: dense bf16 tensor-core rate in TFLOP/s, memory in GB/s, NVLink in GB/s one way. f32
/// rates are left out, since the device chooses the arithmetic of f32 products.
struct Known {
    std::string_view words[2];  ///< words that must both occur in the GPU's name
    double bf16_tflops, memory_gb, link_gb;
};

// The first match of a GPU's name counts. PCIe and NVL boards come first, as the words of SXM boards match them, too.
constexpr Known known[] = {
    {{"A100", "80GB PCI"}, 312, 1935, 0},  // 0: NVLink bridges connect only some boards
    {{"A100", "PCI"}, 312, 1555, 0},      {{"A100", "80GB"}, 312, 2039, 300}, {{"A100", ""}, 312, 1555, 300},
    {{"H100", "PCI"}, 756, 2000, 0},      {{"H100", "NVL"}, 835, 3900, 0},    {{"GH200", ""}, 989, 4000, 450},
    {{"H200", "NVL"}, 835, 4800, 0},      {{"H100", ""}, 989, 3350, 450},     {{"H200", ""}, 989, 4800, 450},
    {{"GB200", ""}, 2450, 8000, 900},     {{"GB300", ""}, 2450, 8000, 900},   {{"B200", ""}, 2250, 8000, 900},
    {{"B300", ""}, 2250, 8000, 900},
};

}  // namespace

ExpectedFigures known_figures(std::string_view device) {
    ExpectedFigures figures;
    for (const Known& one : known) {
        if (device.find(one.words[0]) == std::string_view::npos || device.find(one.words[1]) == std::string_view::npos)
            continue;
        figures.matrix_bf16 = one.bf16_tflops * 1e12;
        figures.memory_bytes = one.memory_gb * 1e9;
        figures.node_link_bytes = one.link_gb * 1e9;
        break;
    }
    return figures;
}

ExpectedFigures expected_of(const ExpectedFigures& said, std::string_view device, int64_t node) {
    ExpectedFigures figures = known_figures(device);
    using E = ExpectedFigures;
    const auto says = [&](double E::*part) {
        return said.*part > 0 && std::none_of(said.unsaid.begin(), said.unsaid.end(), [&](const E::Unsaid& one) {
                   return one.part == part && one.begin <= node && node < one.end;
               });
    };
    for (const auto part : {&E::matrix_f32, &E::matrix_bf16, &E::memory_bytes, &E::node_link_bytes, &E::fabric_bytes,
                            &E::storage_write_bytes, &E::storage_read_bytes})
        if (says(part)) figures.*part = said.*part;
    return figures;
}

}  // namespace orrery
