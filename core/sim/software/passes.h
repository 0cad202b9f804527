#pragma once
#include <cstddef>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

inline size_t at(int index) { return static_cast<size_t>(index); }

/// Whether the instruction is a matrix product or attention, the main work of a fragment.
bool multiplies(const RankClass& c, const Instruction& i);

/// Makes kernels wait for communication into the buffers that they read, and communication for the instructions that
/// wrote its buffers. Existing waits of communication for kernels stay.
void wait_for_reads(RankClass& c);
/// Makes each kernel wait for the messages that fragments issued since the previous kernel.
void wait_for_messages(RankClass& c);

/// Selects mesh axes: a flag for each AxisId.
using AxisFlags = std::vector<char>;
/// Moves collectives that run between fragments of a step after all fragments. `sums`: moves sums over axes outside
/// `data`; sums that include data axes do not wait for them. `data_too`: moves collectives over data axes and
/// everything that reads them; they wait for the last matrix product, and the first kernel waits for collectives before
/// it.
void put_behind_fragments(Plan& plan, const AxisFlags& data, bool sums, bool data_too);

/// Adds casts to bf16, before their first reader, of params that arrive in f32 over an axis of `data`.
void gather_f32(RankClass& c, const AxisFlags& data);
/// Makes weight gradients of each micro-batch bf16 and adds them to their f32 sum in separate launches.
void add_gradients_apart(RankClass& c);
/// How sums of gradients over data axes are sent: in bf16, as whole all-reduces, with all params split.
struct SumTypes {
    bool bf16 = false, whole = false, cut_all = false;
};
void change_sums(RankClass& c, const AxisFlags& data, const SumTypes& types);

}  // namespace orrery
