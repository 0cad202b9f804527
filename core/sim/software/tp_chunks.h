#pragma once
#include <cstdint>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// A plan for prices alone, where anything was cut. It says what a step would cost; nothing can run it: operands keep
/// the places of what they were cut from, and the memory is not placed anew. In place of a fingerprint it has
/// `for_prices_alone` (plan/print.h), which Executor refuses.
struct TpChunked {
    Plan plan;
    int64_t cut = 0;  ///< collectives of the axis that were cut, of all classes, counted as a step issues them
    int64_t all = 0;  ///< and all there were
    /// By class, and by index in its stream: a chunk of a collective (SimulateOptions::mapped). A class in which
    /// nothing was cut has none.
    std::vector<std::vector<char>> chunks;
};

/// Cuts each collective over `axis` that stands directly beside a product in `chunks` chunks that run beside the
/// product's, as Megatron-LM's `tp-comm-overlap` does with Transformer Engine's userbuffers:
///
///     all_gather -> product      G0 G1 G2 G3                   product -> reduce_scatter   P0 P1 P2 P3
///                                   P0 P1 P2 P3                or all_reduce                  R0 R1 R2 R3
///
/// so that c seconds of messages and p of products take about max(c, p) + min(c, p) / chunks. With as many chunks as
/// the axis has members it is Transformer Engine's ring exchange: of a gather and a reduce-scatter one chunk is the
/// rank's own rows, first or last, and waits for no message. A product becomes
/// `chunks` launches with its rows cut, each priced by its own shape; a collective as many with its bytes cut. Of an
/// all_gather all products that read it as rows take part (q, k and v; gate and up) where they can follow the first;
/// of a sum that several products add up in, the last. A transpose between the two (reduce-scatters along a dim that is
/// not the first have one) is cut with them. Products that make gradients of weights stay whole, and so does whatever
/// reads or makes a collective through other kernels: norms, casts, an embedding. Linear in the stream.
TpChunked tp_chunked(const Plan& plan, AxisId axis, int64_t chunks);

}  // namespace orrery
