#pragma once
#include <cstddef>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

inline size_t at(int index) { return static_cast<size_t>(index); }

/// Whether the instruction is a matrix product or attention, forward or backward.
bool multiplies(const RankClass& c, const Instruction& i);

/// Makes kernels wait for communication into the buffers that they read, and communication for the instructions that
/// wrote its buffers. Existing waits of communication for kernels stay.
void wait_for_reads(RankClass& c);
/// Makes each kernel wait for the last pipeline message issued before it, if no earlier kernel does.
void wait_for_messages(RankClass& c);

/// Selects mesh axes: a flag for each AxisId.
using AxisFlags = std::vector<char>;
/// Moves collectives that run between fragments (forwards and backwards of micro-batches) after all fragments. `data`
/// are the data-parallel axes. `sums`: moves sums over other axes; sums over data axes no longer wait for them.
/// `data_too`: moves collectives over data axes and everything that reads their results; they wait for the last matrix
/// product. Collectives before the first kernel then delay that kernel.
void put_behind_fragments(Plan& plan, const AxisFlags& data, bool sums, bool data_too);

/// Adds a cast to bf16 of each param that arrives in f32 over an axis of `data`, before the param's first reader.
void gather_f32(RankClass& c, const AxisFlags& data);
/// Makes weight gradients of each micro-batch bf16; separate launches add them to their f32 sum.
void add_gradients_apart(RankClass& c);
/// How sums of gradients over data axes are sent: in bf16, as all-reduces of whole tensors, with all params split.
struct SumTypes {
    bool bf16 = false, whole = false, cut_all = false;
};
void change_sums(RankClass& c, const AxisFlags& data, const SumTypes& types);

}  // namespace orrery
