#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/device.h"
#include "orrery/op.h"
#include "sim/constants.h"
#include "sim/prices.h"

namespace orrery {

/// What a price of a kernel needs of an accelerator. Rates are rated ones, and `matrix_share` what products reach.
struct AcceleratorRates {
    std::string name;
    double matrix_flops = 0;     ///< FLOP/s of dense bf16 products
    double f16_flops = 0;        ///< of f16; 0: not stated, those of bf16
    double f32_flops = 0;        ///< of f32, as the device makes them (in TF32 or not); 0: not stated, half of bf16's
    double f64_flops = 0;        ///< of f64; 0: not stated, a sixteenth of bf16's
    double eight_bit_flops = 0;  ///< 0: no such products
    double memory_bytes_per_s = 0;
    int64_t multiprocessors = 108;
    double matrix_share = 0.8;  ///< part of matrix_flops that a large product reaches
    double memory_share = 0.85;
    double exponentials_per_s = 0;  ///< 0: 16 a clock and multiprocessor at 1.5 GHz
    /// Flash attention that was not written for it reaches this part of what products do: mma.sync on Hopper is held
    /// to 0.62 of wgmma's rate (Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU").
    double older_code_share = 1;
};

/// How a software stack runs the kernels of a plan.
struct KernelSoftware {
    double launch_s = 2e-6;
    double passes = 1;                ///< bytes that kernels other than products move, over their operands' bytes
    double attention_share = 0.7;     ///< of the rate of products; in flash attention
    double ramp = 128;                ///< a tile's start and end, as elements of the contraction
    bool own_attention = true;        ///< attention is written for this accelerator
    bool separate_attention = false;  ///< scores are written and read by ops of their own, and nothing is halved
    bool eight_bit = false;           ///< products run at the 8-bit rate, with casts before them
    double eight_bit_share = 0.9;     ///< part of the 8-bit peak that products reach, over matrix_share
    int64_t wide = 0;  ///< a product with a dim of this size stays in 16 bits: the head over the vocabulary; 0: none
};

/// What of a launch its price depends on.
struct KernelWork {
    Work work = Work::bytes;                ///< what its time goes by (orrery/op.h)
    DType type = DType::f32;                ///< of the first operand
    double bytes = 0;                       ///< of all operands, once each; of what looks rows up, of these
    double first = 0;                       ///< elements of the first operand
    double batch = 1, m = 0, n = 0, k = 0;  ///< products
    double heads = 0, rows = 0, columns = 0, head = 0, seen = 0;  ///< attention; scores of a head and sequence
};
/// Its time goes by FLOP: a product or attention, forward or backward.
bool multiplies(Work work);
/// Asks the op table; of an op that nobody knows, the bytes.
KernelWork work_of(const KernelSpec& spec);

/// Seconds of kernels on a device of its own, by formula:
/// - products: tiles of the output in waves over the multiprocessors, the best of four tile shapes and of cuts of the
///   contraction, each tile with a ramp; at least their bytes over the memory's bandwidth
/// - attention: flash (causal by half, the backward pass 2.5 times the forward one) at a part of the products' rate,
///   with an exponential a score beside it; or as separate ops
/// - all else: the bytes of its operands, `passes` times, over the memory's bandwidth
class KernelPrices {
public:
    KernelPrices(AcceleratorRates rates, KernelSoftware software);

    double seconds(const KernelSpec& spec) const { return modelled(work_of(spec)); }
    double modelled(const KernelWork& work) const;
    double copy_seconds(int64_t bytes) const;
    /// The parts of Prices: all of it is fixed.
    Demand kernel(const KernelSpec& spec) const { return {.fixed_s = seconds(spec), .loads = {}, .how = ""}; }
    Demand copy(int64_t bytes) const { return {.fixed_s = copy_seconds(bytes), .loads = {}, .how = ""}; }

    /// Seconds of `batch` products [m,k] x [k,n] without the launch.
    double product(double batch, double m, double n, double k, double flops_per_s) const;
    double stream(double bytes) const { return bytes / (rates_.memory_bytes_per_s * rates_.memory_share); }

private:
    double products_of(const KernelWork& work) const;
    /// What large products of the type reach, FLOP/s. Throws Error where the accelerator has none.
    double matrix_rate(DType type) const;
    double attention(const KernelWork& work) const;
    double separate(const KernelWork& work, double rate, bool backward) const;

    AcceleratorRates rates_;
    KernelSoftware software_;
};

}  // namespace orrery
