#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/device.h"
#include "orrery/program.h"
#include "orrery/schedule.h"

namespace orrery {

/// A region of a rank's memory. The persistent arena has inputs, params, states and results; it is fixed for the
/// session, and its programs share it. The scratch arena belongs to one plan.
enum class Arena : uint8_t { persistent, scratch };

/// The use of a buffer, in the words of the memory report.
enum class BufferUse : uint8_t { input, param, state, result, gradient, activation, workspace };
ORRERY_API std::string_view name_of(BufferUse use);

/// A range of an arena. Values share a buffer when one is an alias of another or is written in place over it.
struct Buffer {
    Arena arena = Arena::scratch;
    int64_t offset = 0;  ///< bytes from the start of the arena, a multiple of 64; for a workspace, of scratch_alignment
    int64_t bytes = 0;
    ValueId value = none;  ///< first value stored in the buffer
    BufferUse use = BufferUse::activation;
    int first = 0;  ///< indices of the first and last instruction that access the buffer
    int last = 0;
    int frames = none;   ///< index in RankClass::frames, if the buffer is in the frame of a micro-batch
    int64_t micro = -1;  ///< for a buffer in a frame: its micro-batch in the first run of a Repeat
};

/// Storage of values that outlive one run of a Repeat: a frame for each micro-batch, in one of several equal slots of
/// the scratch arena. Kinds of frames with the same pool share the slots.
struct Frames {
    int pool = 0;
    int64_t offset = 0;  ///< bytes from the start of the arena to the start of the pool
    int64_t stride = 0;  ///< bytes from one slot to the next
    int64_t slots = 1;
    std::vector<int> slot_of;  ///< index of the slot of each micro-batch
};

/// A part of an instruction stream that runs several times. The plan stores its first run, and the instructions after
/// it as if it had run once. In run k everything of micro-batch i belongs to micro-batch i + k * `micros` instead:
/// fragments, tags, operands (by `step`), buffers (by the slots of their frames), and attributes of kernels that depend
/// on the micro-batch. Instructions after the repeated part count as in the last run. See plan/repeat.h.
struct Repeat {
    int begin = 0, end = 0;  ///< indices of the first repeated instruction and of the one after the last
    int64_t times = 1;       ///< number of runs; 1: nothing is repeated
    int64_t micros = 0;      ///< micro-batches per run
    int length() const { return end - begin; }
    /// Index at which the run before the stored one would begin. In the repeated part or after it, a wait for an
    /// instruction from this index to `end` means the one of the waiting run; a smaller index is the same in all runs.
    int from() const { return begin - length(); }
};

/// An operand of an instruction: a dense local tensor in a buffer.
struct Operand {
    int buffer = none;
    int64_t offset = 0;  ///< bytes from the start of the buffer
    TensorType type;     ///< element type and local shape
    ValueId value = none;
    int64_t step = 0;  ///< bytes added to `offset` for each micro-batch in the later runs of a Repeat
};

/// What an instruction does. Checker, executor and printer all switch over this list.
enum class Opcode : uint8_t {
    kernel,          ///< runs a kernel on the operands (inputs, then outputs)
    copy,            ///< copies the bytes of operand 0 to operand 1
    all_reduce,      ///< operand 0 -> operand 1 over the P ranks of `axis`; S bytes, sends 2 S (P-1)/P
    all_gather,      ///< [S/P] -> [S] bytes along dim 0 over P ranks; each sends S (P-1)/P bytes
    reduce_scatter,  ///< [S] -> [S/P] bytes along dim 0 over P ranks; each sends S (P-1)/P bytes
    all_to_all,      ///< [S] -> [S] bytes, block i goes to rank i of P; each sends S (P-1)/P bytes
    send = 7,        ///< sends operand 0 to member `peer_of` of `axis`. The number 7 is part of fingerprints
    receive,         ///< receives operand 0 from member `peer_of` of `axis`
};
ORRERY_API std::string_view name_of(Opcode opcode);

struct Instruction {
    Opcode opcode = Opcode::kernel;
    int queue = 0;         ///< queue of the device: 0 for compute; 1 and more for communication
    int kernel = none;     ///< Opcode::kernel: index into RankClass::kernels
    int workspace = none;  ///< Opcode::kernel: index of its scratch buffer, used only during the kernel
    /// Operands. For an all_reduce of several joined values: one flat input, one flat output, then the (input, output)
    /// pairs of the values, which are ranges of the flat ones.
    std::vector<Operand> operands;
    AxisId axis = none;  ///< mesh axis of a collective, send or receive
    ReduceOp reduce = ReduceOp::sum;
    int peer = none;  ///< for send and receive: the other member of `axis`
    /// For send and receive: `peer` is an offset (1 to size - 1) from the own member, modulo size: for a rolled dim.
    bool relative = false;
    int64_t tag = 0;         ///< for send and receive: number that matches a send with its receive
    OpId op = none;          ///< op of the propagated program; none for a copy at the end of the step
    Fragment fragment;       ///< fragment of the schedule; micro is -1 for what runs once per step, before or after it
    std::vector<int> waits;  ///< indices of earlier instructions on other queues that must be done first

    /// For send and receive: returns the other member, as seen by member `own` of an axis of `size` members.
    int peer_of(int64_t own, int64_t size) const { return relative ? static_cast<int>((own + peer) % size) : peer; }
};

/// An attribute of a kernel that depends on the rank: attribute `key`, or its element `dim`, is increased by `step`
/// times the coordinate of the rank on `axis`. On the sequential axis the coordinate is the micro-batch.
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
    int stage = 0;                    ///< coordinate of the ranks on the pipeline axis
    std::vector<int> stages;          ///< pipeline stages of these ranks, by chunk; empty: no pipeline
    std::vector<KernelSpec> kernels;  ///< distinct specs of the instructions; each is prepared once
    std::vector<PerRank> per_rank;    ///< attributes that depend on the rank, sorted by kernel
    std::vector<Buffer> buffers;
    std::vector<Instruction> stream;
    Repeat repeat;
    std::vector<Frames> frames;
    std::vector<Operand> places;   ///< where the host finds this rank's part of inputs, params, states and results
    int64_t persistent_bytes = 0;  ///< bytes for this program alone; the session's arena holds those of all programs
    int64_t scratch_bytes = 0;     ///< bytes, with the workspaces of kernels if lowering knew their sizes
    int64_t scratch_floor = 0;     ///< max bytes in use at once: no assignment of buffers can need less
};

/// A program lowered to instructions for a mesh.
struct Plan {
    Program program;  ///< the program after propagation, with layouts and collectives
    Mesh mesh;
    Schedule schedule;
    AxisId stage_axis = none;  ///< mesh axis of the pipeline; none: no pipeline
    /// By AxisId: layers by which all-gathers of params run ahead of readers and reduce-scatters trail. Empty: all 0.
    std::vector<PrefetchDepth> ahead;
    int threads_per_rank = 1;
    std::vector<RankClass> classes;
    std::string fingerprint;  ///< SHA-256 of everything that ranks must agree on; they compare it before step 0

    ORRERY_API const RankClass& class_of(int64_t rank) const;
};

/// Returns the spec of kernel `index` of the class, with the attributes that depend on rank and micro-batch filled in.
ORRERY_API KernelSpec kernel_for(const RankClass& rank_class, int index, const Mesh& mesh, int64_t rank,
                                 int64_t micro = 0);

}  // namespace orrery
