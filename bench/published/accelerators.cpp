#include "published/accelerators.h"

#include <fmt/format.h>

#include <regex>

#include "orrery/error.h"

namespace orrery::published {
namespace {

// Rated dense TFLOP/s, memory and links: shared/data/hardware.csv, whose lines name their sources; multiprocessors:
// NVIDIA's architecture white papers (A100 108, H100 SXM 132, B200 148; GB200 and GB300 152).
// clang-format off
const std::vector<AcceleratorFacts>& facts() {
    static const std::vector<AcceleratorFacts> all = {
        // name, bf16, 8 bit, GiB, GB/s, NVLink GB/s, NIC GB/s, domain, multiprocessors, reached, older code,
        // generation, NVLS
        {"V100-32G-SXM2", 125, 0, 32, 900, 150, 12.5, 8, 80, 0.80, 1, "volta", false},
        {"A100-40G-SXM", 312, 0, 40, 1555, 300, 25, 8, 108, 0.87, 1, "ampere", false},
        {"A100-80G-SXM", 312, 0, 80, 2039, 300, 25, 8, 108, 0.87, 1, "ampere", false},
        {"H100-80G-SXM", 989, 1979, 80, 3350, 450, 50, 8, 132, 0.80, 0.62, "hopper", true},
        {"H100-96G-HBM2e 500W", 989, 1979, 96, 2400, 450, 50, 8, 132, 0.65, 0.62, "hopper", true},
        {"H800-SXM", 989, 1979, 80, 3350, 200, 50, 8, 132, 0.80, 0.62, "hopper", true},
        {"H200-141G-SXM", 989, 1979, 141, 4800, 450, 50, 8, 132, 0.80, 0.62, "hopper", true},
        {"GH200-SXM", 989, 1979, 96, 4000, 450, 50, 1, 132, 0.84, 0.62, "hopper", true},
        {"B200-HGX8", 2250, 4500, 180, 8000, 900, 50, 8, 148, 0.775, 0.5, "blackwell", true},
        {"B300-HGX8", 2250, 4500, 270, 8000, 900, 100, 8, 148, 0.786, 0.5, "blackwell", true},
        {"GB200-NVL72", 2450, 4900, 186, 8000, 900, 50, 72, 152, 0.744, 0.5, "blackwell", true},
        {"GB300-NVL72", 2450, 4900, 279, 8000, 900, 100, 72, 152, 0.744, 0.5, "blackwell", true},
        {"MI300X", 1300, 2600, 192, 5300, 448, 50, 8, 304, 0.514, 1, "ampere", false},
    };
    return all;
}
// clang-format on

}  // namespace

const AcceleratorFacts& accelerator_facts(const std::string& name) {
    std::string names;
    for (const AcceleratorFacts& one : facts()) {
        if (one.name == name) return one;
        names += (names.empty() ? "" : ", ") + one.name;
    }
    throw Error(fmt::format("no accelerator \"{}\"; there are {}", name, names));
}

double stated_share(const std::string& gpu) {
    static const std::regex rate(R"(GEMM[^0-9]*([0-9]+)-([0-9]+)% of)");
    std::smatch found;
    if (!std::regex_search(gpu, found, rate)) return 0;
    return (std::stod(found[1]) + std::stod(found[2])) / 200;
}

AcceleratorRates rates_of(const std::string& gpu, const Constants& constants) {
    std::string name = gpu.substr(0, gpu.find('('));
    while (!name.empty() && name.back() == ' ') name.pop_back();
    const AcceleratorFacts& one = accelerator_facts(name);
    AcceleratorRates rates;
    rates.name = name;
    rates.matrix_flops = one.matrix_tflops * 1e12;
    rates.eight_bit_flops = one.eight_bit_tflops * 1e12;
    rates.memory_bytes_per_s = one.memory_gb_s * 1e9;
    rates.multiprocessors = one.multiprocessors;
    rates.older_code_share = one.older_code_share;
    rates.memory_share = constants.of("memory.share");
    const std::string constant = "matrix." + name;
    rates.matrix_share = constants.has(constant) ? constants.of(constant) : one.reached;
    if (const double stated = stated_share(gpu); stated > 0) rates.matrix_share = stated;
    rates.matrix_share *= constants.of("product.sustained");
    return rates;
}

}  // namespace orrery::published
