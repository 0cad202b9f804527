#pragma once
#include <string>
#include <vector>

#include "sim/constants.h"
#include "sim/kernel_prices.h"

namespace orrery::published {

/// An accelerator as its maker rates it, with its links.
struct AcceleratorFacts {
    std::string name;  ///< as rows name it before a bracket
    double matrix_tflops, eight_bit_tflops, memory_gib, memory_gb_s, nvlink_gb_s, nic_gb_s;
    int64_t domain;  ///< accelerators that share fast links
    int64_t multiprocessors;
    double reached;  ///< part of matrix_tflops that a large product alone reaches (measured, hardware.csv: mamf)
    double older_code_share;
    const char* generation;
    bool nvls;  ///< the switch adds and copies
};

/// Throws Error naming those that there are.
const AcceleratorFacts& accelerator_facts(const std::string& name);

/// The rates of a row's accelerator: a constant says what part of the peak products reach, where there is one; else
/// `reached`; and where the bracket behind the name states a rate of products, that.
AcceleratorRates rates_of(const std::string& gpu, const Constants& constants);

/// "GEMM only ~45-65% of 2250" -> 0.55; 0 where a bracket states none.
double stated_share(const std::string& gpu);

}  // namespace orrery::published
