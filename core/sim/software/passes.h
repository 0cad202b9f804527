#pragma once
#include <cstddef>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

inline size_t at(int index) { return static_cast<size_t>(index); }

/// A product or attention: what a fragment is for.
bool multiplies(const RankClass& c, const Instruction& i);

/// Kernels wait for what brought the buffers that they read, communication for what made and brought them; the plan's
/// own waits of communication for kernels stay.
void wait_for_reads(RankClass& c);
/// A kernel waits for the messages of fragments since the kernel before it.
void wait_for_messages(RankClass& c);

/// By AxisId.
using AxisFlags = std::vector<char>;
/// Where they stand between fragments, sums over axes that are not `data` go behind all of them; what is summed over
/// data too does not wait for that. With `data_too` so do collectives over data, with all that reads these: they wait
/// for the last product, and the first kernel for those before it.
void put_behind_fragments(Plan& plan, const AxisFlags& data, bool sums, bool data_too);

/// Casts of bf16 params that have come in f32 over an axis of `data`, before their first reader.
void gather_f32(RankClass& c, const AxisFlags& data);
/// Gradients of weights of each micro-batch come in bf16, and a launch of its own adds each to its sum in f32.
void add_gradients_apart(RankClass& c);
/// What sums over `data` send.
struct SumTypes {
    bool bf16 = false, whole = false, cut_all = false;
};
void change_sums(RankClass& c, const AxisFlags& data, const SumTypes& types);

}  // namespace orrery
