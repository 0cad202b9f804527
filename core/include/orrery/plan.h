#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/device.h"
#include "orrery/program.h"
#include "orrery/schedule.h"

namespace orrery {

/// The persistent arena holds inputs, params, states and results: fixed for the session and shared by its programs.
/// The scratch arena belongs to one plan.
enum class Arena : uint8_t { persistent, scratch };

/// What a buffer is for, in the words of the memory report.
enum class BufferUse : uint8_t { input, param, state, result, gradient, activation, workspace };
ORRERY_API std::string_view name_of(BufferUse use);

/// A place in an arena. Values share a buffer where one is an alias of, or written in place over, another.
struct Buffer {
    Arena arena = Arena::scratch;
    int64_t offset = 0;  ///< bytes from the arena's start, a multiple of 64; a workspace's of scratch_alignment
    int64_t bytes = 0;
    ValueId value = none;  ///< the first value that lives here
    BufferUse use = BufferUse::activation;
    int first = 0;  ///< first and last instruction that touch it
    int last = 0;
    int frames = none;   ///< RankClass::frames: it lies in one of these, that of its micro-batch
    int64_t micro = -1;  ///< in frames: in the first run
};

/// Where what lives on from one run of a Repeat to the next lies, for each micro-batch: frames of one kind, in slots
/// side by side in the scratch arena, which kinds of one pool share.
struct Frames {
    int pool = 0;
    int64_t offset = 0;  ///< of the pool: bytes from the arena's start
    int64_t stride = 0;  ///< bytes from one slot to the next
    int64_t slots = 1;
    std::vector<int> slot_of;  ///< by micro-batch
};

/// A stretch of a stream that runs several times. What is stored is its first run, and what follows as if it had run
/// once; in run k (behind it: the last one) whatever is of micro-batch i is of i + k `micros`: fragments, tags,
/// operands by their `step`, buffers by the slots of their frames, attributes of kernels that depend on it.
/// plan/repeat.h.
struct Repeat {
    int begin = 0, end = 0;  ///< of the stream
    int64_t times = 1;       ///< 1: nothing is repeated
    int64_t micros = 0;
    int length() const { return end - begin; }
    /// What lies before the stretch from here on is like it, a run earlier. Who waits for an instruction from here to
    /// `end`, in the stretch or behind it, waits for that of its own run; an earlier one is the same for all runs.
    int from() const { return begin - length(); }
};

/// An operand as the instruction sees it: a dense local tensor at a place in a buffer.
struct Operand {
    int buffer = none;
    int64_t offset = 0;  ///< bytes from the buffer's start
    TensorType type;     ///< local shape
    ValueId value = none;
    int64_t step = 0;  ///< what `offset` grows by with each micro-batch, where runs of a Repeat move it
};

/// What an instruction does. One line each; checker, executor and printer all switch over this list.
enum class Opcode : uint8_t {
    kernel,          ///< spec on operands (inputs, then outputs)
    copy,            ///< operand 0 -> operand 1, same bytes
    all_reduce,      ///< operand 0 -> operand 1 over `axis`; sends 2 S (P-1)/P
    all_gather,      ///< [S/P] -> [S] along dim 0 of both; sends S (P-1)/P
    reduce_scatter,  ///< [S] -> [S/P]; sends S (P-1)/P
    all_to_all,      ///< [S] -> [S], block i goes to member i; sends S (P-1)/P
    send = 7,        ///< operand 0 to member `peer_of` of `axis`; sends S. The number is part of fingerprints
    receive,         ///< operand 0 from member `peer_of` of `axis`
};
ORRERY_API std::string_view name_of(Opcode opcode);

struct Instruction {
    Opcode opcode = Opcode::kernel;
    int queue = 0;         ///< 0: compute; 1...: communication
    int kernel = none;     ///< kernel: index into RankClass::kernels
    int workspace = none;  ///< kernel: the buffer of its own scratch, of no meaning before and after
    /// An all_reduce that joins several values has one flat operand in and out, then the values' own places in pairs
    /// (in, out), which lie inside these.
    std::vector<Operand> operands;
    AxisId axis = none;  ///< communication: over this axis of the mesh
    ReduceOp reduce = ReduceOp::sum;
    int peer = none;  ///< send, receive: the other member of `axis`
    bool relative =
        false;          ///< send, receive: `peer`, 1 to size - 1, is counted from the rank's own member, modulo size
    int64_t tag = 0;    ///< send, receive: pairs them on one edge
    OpId op = none;     ///< op of the propagated program; none for a copy at the end of the step
    Fragment fragment;  ///< micro is -1 for what runs once a step, before or after the fragments
    std::vector<int> waits;  ///< earlier instructions on other queues that must be done first

    /// send, receive: the other member, where the rank is member `own` of an axis of `size`.
    int peer_of(int64_t own, int64_t size) const { return relative ? static_cast<int>((own + peer) % size) : peer; }
};

/// Attribute `key` of a kernel depends on the rank: step * (the rank's coordinate on `axis`) is added to it, or to its
/// element `dim`. On the sequential axis the coordinate is the micro-batch.
struct PerRank {
    int kernel = none;
    std::string key;
    int dim = none;
    AxisId axis = none;
    int64_t step = 0;
};

/// Ranks that differ only by coordinate share a stream. Kernels whose attributes depend on the coordinate are patched
/// per rank when they are prepared.
struct RankClass {
    std::vector<int64_t> ranks;
    int stage = 0;                    ///< pipeline rank
    std::vector<int> stages;          ///< the stages it runs, by chunk; empty: the program has none
    std::vector<KernelSpec> kernels;  ///< distinct specs, each prepared once
    std::vector<PerRank> per_rank;    ///< sorted by kernel
    std::vector<Buffer> buffers;
    std::vector<Instruction> stream;
    Repeat repeat;
    std::vector<Frames> frames;
    std::vector<Operand> places;   ///< inputs, params, states and results: where the host finds the local part
    int64_t persistent_bytes = 0;  ///< of this program alone; the session's arena holds all its programs'
    int64_t scratch_bytes = 0;     ///< with the kernels' workspaces where lowering was told of them
    int64_t scratch_floor = 0;     ///< most bytes alive at once: no placement needs less
};

/// A program lowered for a mesh.
struct Plan {
    Program program;  ///< after propagation, with collectives and layouts
    Mesh mesh;
    Schedule schedule;
    AxisId stage_axis = none;  ///< the axis that carries stages
    /// By AxisId: how far gathers of params run ahead of their readers, and reduce-scatters trail; empty: none does.
    std::vector<PrefetchDepth> ahead;
    int threads_per_rank = 1;
    std::vector<RankClass> classes;
    std::string fingerprint;  ///< SHA-256 of all that ranks must agree on, compared before step 0

    ORRERY_API const RankClass& class_of(int64_t rank) const;
};

/// What this rank runs for kernel `index` in micro-batch `micro`: the class' spec with the attributes that depend on
/// these filled in.
ORRERY_API KernelSpec kernel_for(const RankClass& rank_class, int index, const Mesh& mesh, int64_t rank,
                                 int64_t micro = 0);

}  // namespace orrery
