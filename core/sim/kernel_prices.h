#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/device.h"
#include "orrery/op.h"
#include "sim/constants.h"
#include "sim/prices.h"

namespace orrery {

/// Properties of an accelerator that determine the price of a kernel. Rates are nominal; matrix products reach the
/// fraction `matrix_share`.
struct AcceleratorRates {
    std::string name;
    double matrix_flops = 0;     ///< FLOP/s of dense bf16 matrix products
    double f16_flops = 0;        ///< FLOP/s of f16 matrix products; 0: unknown, same as bf16
    double f32_flops = 0;        ///< FLOP/s of f32 matrix products, as the device computes them (TF32 or not); 0:
                                 ///< unknown, half of bf16's
    double f64_flops = 0;        ///< FLOP/s of f64 matrix products; 0: unknown, a sixteenth of bf16's
    double eight_bit_flops = 0;  ///< FLOP/s of 8-bit matrix products; 0: not supported
    double memory_bytes_per_s = 0;
    int64_t multiprocessors = 108;
    double matrix_share = 0.8;  ///< fraction of matrix_flops that large matrix products reach
    double memory_share = 0.85;
    double exponentials_per_s = 0;  ///< exponentials per second; 0: 16 per clock and multiprocessor at 1.5 GHz
    /// Fraction of the rate of matrix products that flash attention reaches if it was written for an older accelerator:
    /// mma.sync on Hopper reaches at most 0.62 of wgmma's rate (Luo et al. 2024, "Benchmarking and Dissecting the
    /// Nvidia Hopper GPU").
    double older_code_share = 1;
};

/// How a software stack runs the kernels of a plan.
struct KernelSoftware {
    double launch_s = 2e-6;
    double passes = 1;                ///< bytes moved by kernels without matrix products, per byte of their operands
    double attention_share = 0.7;     ///< fraction of the rate of matrix products that flash attention reaches
    double ramp = 128;                ///< time to start and end an output tile, in elements of the contracted dim
    bool own_attention = true;        ///< attention's kernels are for this accelerator; if not, see older_code_share
    bool separate_attention = false;  ///< attention is separate ops that write and read scores and ignore causality
    bool casts_weights = false;       ///< weights of 8-bit matrix products are cast in each launch, not once a step
    bool eight_bit = false;           ///< whether matrix products run at the 8-bit rate, after casts
    double eight_bit_share = 0.9;     ///< factor on matrix_share for 8-bit matrix products
    int64_t wide = 0;                 ///< matrix products with a dim of this size (vocabulary) stay in 16 bits; 0: none
};

/// Quantities of a kernel launch that determine its predicted time.
struct KernelWork {
    Work work = Work::bytes;                ///< quantity that determines the launch's time (Work in orrery/op.h)
    DType type = DType::f32;                ///< type of the first operand
    double bytes = 0;                       ///< bytes of all operands, each once; of a row lookup only the rows read
    double first = 0;                       ///< number of elements of the first operand
    double batch = 1, m = 0, n = 0, k = 0;  ///< sizes of `batch` matrix products [m,k] x [k,n]
    double heads = 0, rows = 0, columns = 0, head = 0, seen = 0;  ///< sizes of attention; `seen`: scores per head
};
/// Whether the launch's time is proportional to FLOP: a matrix product or attention, forward or backward.
bool multiplies(Work work);
/// Derives a launch's quantities from the op table; for an unknown op only its bytes.
KernelWork work_of(const KernelSpec& spec);

/// Predicts seconds of kernels that have a device to themselves:
/// - matrix products: tiles of the output in waves over the multiprocessors, the best of four tile shapes and of splits
///   of the contraction, each tile with a ramp; at least their bytes over the memory's bandwidth
/// - attention: flash (causal halves it, the backward pass takes 2.5 times the forward one) at a fraction of the
///   rate of matrix products, with one exponential per score in parallel; or as separate ops
/// - everything else: the bytes of its operands, `passes` times, over the memory's bandwidth
class KernelPrices {
public:
    KernelPrices(AcceleratorRates rates, KernelSoftware software);

    double seconds(const KernelSpec& spec) const { return modelled(work_of(spec)); }
    double modelled(const KernelWork& work) const;
    double copy_seconds(int64_t bytes) const;
    /// Returns a kernel's demand: only fixed time (see Prices), since ranks do not share devices.
    Demand kernel(const KernelSpec& spec) const { return {.fixed_s = seconds(spec), .loads = {}, .how = ""}; }
    Demand copy(int64_t bytes) const { return {.fixed_s = copy_seconds(bytes), .loads = {}, .how = ""}; }

    /// Seconds of `batch` matrix products [m,k] x [k,n], without the launch's latency.
    double product(double batch, double m, double n, double k, double flops_per_s) const;
    double stream(double bytes) const { return bytes / (rates_.memory_bytes_per_s * rates_.memory_share); }

private:
    double products_of(const KernelWork& work) const;
    /// FLOP/s that large matrix products of the type reach. Throws Error if the accelerator does not support the type.
    double matrix_rate(DType type) const;
    double attention(const KernelWork& work) const;
    double separate(const KernelWork& work, double rate, bool backward) const;

    AcceleratorRates rates_;
    KernelSoftware software_;
};

}  // namespace orrery
