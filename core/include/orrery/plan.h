#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/device.h"
#include "orrery/program.h"
#include "orrery/schedule.h"

namespace orrery {

/// The persistent arena contains inputs, params, states and results; it is fixed for the session, and its programs
/// share it. The scratch arena belongs to one plan.
enum class Arena : uint8_t { persistent, scratch };

/// The use of a buffer, in the words of the memory report.
enum class BufferUse : uint8_t { input, param, state, result, gradient, activation, workspace };
ORRERY_API std::string_view name_of(BufferUse use);

/// A range of an arena. Values share a buffer when one is an alias of another or is written in place over it.
struct Buffer {
    Arena arena = Arena::scratch;
    int64_t offset = 0;  ///< bytes from the start of the arena, a multiple of 64; for a workspace, of scratch_alignment
    int64_t bytes = 0;
    ValueId value = none;  ///< the first value in it
    BufferUse use = BufferUse::activation;
    int first = 0;  ///< first and last instruction that access it
    int last = 0;
    int frames = none;   ///< index in RankClass::frames, where it is in the frame of its micro-batch
    int64_t micro = -1;  ///< in a frame: its micro-batch in the first run
};

/// Storage of values that outlive a run of a Repeat. Each micro-batch has a frame, in one of several equal slots of the
/// scratch arena. Kinds of frames in the same pool share its slots.
struct Frames {
    int pool = 0;
    int64_t offset = 0;  ///< start of the pool: bytes from the start of the arena
    int64_t stride = 0;  ///< bytes from one slot to the next
    int64_t slots = 1;
    std::vector<int> slot_of;  ///< by micro-batch
};

/// A part of a stream that runs several times. The plan stores its first run, and the instructions after it as if it
/// had run once. In run k everything of micro-batch i belongs to micro-batch i + k * `micros` instead: fragments, tags,
/// operands (by `step`), buffers (by the slots of their frames), and attributes of kernels that depend on the
/// micro-batch. Instructions after the repeated part count as in the last run. See plan/repeat.h.
struct Repeat {
    int begin = 0, end = 0;  ///< indices in the stream
    int64_t times = 1;       ///< 1: nothing is repeated
    int64_t micros = 0;      ///< micro-batches per run
    int length() const { return end - begin; }
    /// Start of the instructions that equal the repeated part, one run earlier. From the repeated part or after it, a
    /// wait for an index from here to `end` means the waiting run; a smaller index is the same in all runs.
    int from() const { return begin - length(); }
};

/// An operand of an instruction: a dense local tensor in a buffer.
struct Operand {
    int buffer = none;
    int64_t offset = 0;  ///< bytes from the start of the buffer
    TensorType type;     ///< local shape
    ValueId value = none;
    int64_t step = 0;  ///< added to `offset` for each micro-batch in the later runs of a Repeat
};

/// What an instruction does. Checker, executor and printer all switch over this list.
enum class Opcode : uint8_t {
    kernel,          ///< spec on operands (inputs, then outputs)
    copy,            ///< operand 0 -> operand 1, same bytes
    all_reduce,      ///< operand 0 -> operand 1 over `axis`; sends 2 S (P-1)/P
    all_gather,      ///< [S/P] -> [S] along dim 0 of both; sends S (P-1)/P
    reduce_scatter,  ///< [S] -> [S/P]; sends S (P-1)/P
    all_to_all,      ///< [S] -> [S], block i goes to member i; sends S (P-1)/P
    send = 7,        ///< operand 0 to member `peer_of` of `axis`; sends S. Fingerprints contain the number 7
    receive,         ///< operand 0 from member `peer_of` of `axis`
};
ORRERY_API std::string_view name_of(Opcode opcode);

struct Instruction {
    Opcode opcode = Opcode::kernel;
    int queue = 0;         ///< 0: compute; 1 and more: communication
    int kernel = none;     ///< kernel: index into RankClass::kernels
    int workspace = none;  ///< kernel: the buffer of its scratch, whose contents matter only during the kernel
    /// An all_reduce of several joined values has one flat input and one flat output, then the (input, output) pairs of
    /// the values, which are ranges of the flat ones.
    std::vector<Operand> operands;
    AxisId axis = none;  ///< communication: axis of the mesh
    ReduceOp reduce = ReduceOp::sum;
    int peer = none;  ///< send, receive: the other member of `axis`
    /// send, receive: `peer` (1 to size - 1) is an offset from the own member, modulo size. No pass of core sets it.
    bool relative = false;
    int64_t tag = 0;         ///< send, receive: identifies the pair on one edge
    OpId op = none;          ///< op of the propagated program; none for a copy at the end of the step
    Fragment fragment;       ///< micro is -1 for what runs once per step, before or after the fragments
    std::vector<int> waits;  ///< earlier instructions on other queues that it waits for

    /// send, receive: the other member, for member `own` of an axis of `size`.
    int peer_of(int64_t own, int64_t size) const { return relative ? static_cast<int>((own + peer) % size) : peer; }
};

/// Attribute `key` of a kernel, or its element `dim`, depends on the rank: it is increased by `step` times the
/// coordinate of the rank on `axis`. On the sequential axis the coordinate is the micro-batch.
struct PerRank {
    int kernel = none;
    std::string key;
    int dim = none;
    AxisId axis = none;
    int64_t step = 0;
};

/// Ranks that differ only by their coordinates and share one instruction stream. Attributes of kernels that depend on
/// the coordinate are set per rank when the kernels are prepared.
struct RankClass {
    std::vector<int64_t> ranks;
    int stage = 0;                    ///< pipeline rank
    std::vector<int> stages;          ///< its stages, by chunk; empty: the program has none
    std::vector<KernelSpec> kernels;  ///< distinct specs, each prepared once
    std::vector<PerRank> per_rank;    ///< sorted by kernel
    std::vector<Buffer> buffers;
    std::vector<Instruction> stream;
    Repeat repeat;
    std::vector<Frames> frames;
    std::vector<Operand> places;   ///< inputs, params, states and results: where the host finds the local part
    int64_t persistent_bytes = 0;  ///< of this program alone; the arena of the session holds those of all its programs
    int64_t scratch_bytes = 0;     ///< includes the workspaces of kernels if lowering knew their sizes
    int64_t scratch_floor = 0;     ///< max bytes alive at once: no assignment of buffers can need less
};

/// A program lowered to instructions for a mesh.
struct Plan {
    Program program;  ///< after propagation, with layouts and collectives
    Mesh mesh;
    Schedule schedule;
    AxisId stage_axis = none;  ///< the axis that carries stages
    /// By AxisId: how far all-gathers of params run ahead of their readers and reduce-scatters trail. Empty: none does.
    std::vector<PrefetchDepth> ahead;
    int threads_per_rank = 1;
    std::vector<RankClass> classes;
    std::string fingerprint;  ///< SHA-256 of everything that ranks must agree on; they compare it before step 0

    ORRERY_API const RankClass& class_of(int64_t rank) const;
};

/// The spec of kernel `index` of the class with the attributes that depend on rank and micro-batch filled in.
ORRERY_API KernelSpec kernel_for(const RankClass& rank_class, int index, const Mesh& mesh, int64_t rank,
                                 int64_t micro = 0);

}  // namespace orrery
