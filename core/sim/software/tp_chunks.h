#pragma once
#include <cstdint>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// A plan in which collectives were cut. It serves only for prices and cannot run, since operands keep the addresses of
/// what they were cut from. Its fingerprint is `for_prices_alone` (plan/print.h), which Executor refuses.
struct TpChunked {
    Plan plan;
    int64_t cut = 0;  ///< number of collectives over the axis that were cut, as issued in a step by all classes
    int64_t all = 0;  ///< number of collectives over the axis, counted in the same way
    /// By rank class and index in the class's stream: whether an instruction is a chunk of a collective
    /// (SimulateOptions::mapped). Empty for a class in which nothing was cut.
    std::vector<std::vector<char>> chunks;
};

/// Cuts each collective over `axis` that is adjacent to a matrix product into `chunks` chunks that overlap with chunks
/// of the product, as Megatron-LM's `tp-comm-overlap` does with Transformer Engine's userbuffers:
///
///     all_gather -> product      G0 G1 G2 G3                   product -> reduce_scatter   P0 P1 P2 P3
///                                   P0 P1 P2 P3                or all_reduce                  R0 R1 R2 R3
///
/// so that c seconds of messages and p of products take about max(c, p) + min(c, p) / chunks. With as many chunks as
/// the axis has members this is Transformer Engine's ring exchange: one chunk of a gather or reduce-scatter is the
/// rank's own rows, first or last, and waits for no message. A product becomes `chunks` launches over parts of its
/// rows, each priced by its shape; a collective becomes `chunks` collectives over parts of its bytes. All products that
/// read an all_gather as rows take part (q, k and v; gate and up) if they can follow the first; of several products
/// added into one sum, the last takes part. A transpose in between (reduce-scatters along a dim other than the first
/// have one) is cut, too. Products that compute weight gradients stay whole, and so do collectives read or made by
/// other kernels: norms, casts, an embedding. Linear in the stream.
TpChunked tp_chunked(const Plan& plan, AxisId axis, int64_t chunks);

}  // namespace orrery
