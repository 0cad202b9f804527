#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

inline size_t at(int index) { return static_cast<size_t>(index); }

/// Whether the instruction is a matrix product or attention, forward or backward.
bool multiplies(const RankClass& c, const Instruction& i);

/// Whether the op is an all-gather of the backward pass of a value that the forward pass computed.
bool gathers_again(const Program& program, const Op& op);

/// Makes kernels wait for communication into the buffers that they read, and communication for the instructions that
/// wrote its buffers. Existing waits of communication for kernels stay.
void wait_for_reads(RankClass& c);
/// Makes each kernel wait for the last pipeline message issued before it, if no earlier kernel does. `in_pairs`: for
/// the last send, but no kernel of a backward pass for a send of a forward pass.
void wait_for_messages(RankClass& c, bool in_pairs);

/// Selects mesh axes: a flag for each AxisId.
using AxisFlags = std::vector<char>;
/// Selects the axes with a name in `names`, and joined ones that contain such an axis, like "rep+dp".
AxisFlags axes_named(const Mesh& mesh, const std::vector<std::string>& names);
/// What does not overlap with fragments (forwards and backwards of micro-batches).
struct Late {
    bool sums = false;       ///< sums over other axes than data's move after all fragments
    bool gradients = false;  ///< so do sums over data axes and what reads them; they wait for the last matrix product
    bool params = false;     ///< collectives over data axes before the first kernel delay it
};
/// Moves collectives that run between fragments after all of them. `data` are the data-parallel axes, whose sums do not
/// wait for those over other axes that move.
void put_behind_fragments(Plan& plan, const AxisFlags& data, Late late);

/// Adds a cast to bf16 of each param that arrives in f32 over an axis of `data`, before the param's first reader.
void gather_f32(RankClass& c, const AxisFlags& data);
/// Makes each param that arrives in 16 bits over an axis of `data` arrive in 8.
void gather_8_bit(RankClass& c, const AxisFlags& data);
/// Copies to insert before an instruction: `count` of `bytes` each (0 bytes: none). The first takes over the
/// instruction's waits, or waits for instruction `after` alone.
struct Copies {
    int64_t bytes = 0, count = 1;
    int after = none;
    int relaunch = none;  ///< index of a kernel to launch again, instead of copies
    int sum = none;       ///< index of the collective that sums the kernel's output, to run again after it
};
/// Inserts copies and kernels before each instruction. Communication that has some waits for the last.
void insert_copies(RankClass& c, const std::vector<Copies>& copies);
/// In each block whose attention is recomputed, also runs the block's last GEMM and the sum of its output again,
/// although nothing reads them. The block's next kernel waits for the sum. `data`: axes whose sums are not the block's.
void recompute_whole(RankClass& c, const Program& program, const AxisFlags& data);
/// Adds a copy for each rank's part of each param gathered over `data`, and two for each rank's part of every `joined`
/// bytes of gradients.
void copy_parts(RankClass& c, const Mesh& mesh, const AxisFlags& data, int64_t joined);
/// Makes weight gradients of each micro-batch bf16; separate launches add them to their sum, in bf16 or f32.
void add_gradients_apart(RankClass& c, bool bf16);
/// How sums of gradients over data axes are sent: in bf16, as all-reduces of whole tensors, with all params split.
struct SumTypes {
    bool bf16 = false, whole = false, cut_all = false;
};
void change_sums(RankClass& c, const AxisFlags& data, const SumTypes& types);

}  // namespace orrery
