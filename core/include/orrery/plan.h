#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/device.h"
#include "orrery/program.h"
#include "orrery/schedule.h"

namespace orrery {

/// The persistent arena holds inputs' slots, params, states and gradients: fixed for the session and shared by its
/// programs. The scratch arena belongs to one plan.
enum class Arena : uint8_t { persistent, scratch };

/// A place in an arena. Values share a buffer where one is an alias of, or written in place over, another.
struct Buffer {
    Arena arena = Arena::scratch;
    int64_t offset = 0;    ///< bytes from the arena's start, a multiple of 64
    int64_t bytes = 0;
    ValueId value = none;  ///< the first value that lives here
    int first = 0;         ///< first and last instruction that touch it
    int last = 0;
};

/// An operand as the instruction sees it: a dense local tensor at a place in a buffer.
struct Operand {
    int buffer = none;
    int64_t offset = 0;  ///< bytes from the buffer's start
    TensorType type;     ///< local shape
    ValueId value = none;
};

/// What an instruction does. One line each; checker, executor, simulator and printer all switch over this list.
enum class Do : uint8_t {
    kernel,          ///< spec on operands (inputs, then outputs)
    copy,            ///< operand 0 -> operand 1, same bytes
    all_reduce,      ///< operand 0 -> operand 1 over `axis`; sends 2 S (P-1)/P
    all_gather,      ///< [S/P] -> [S] along dim 0 of both; sends S (P-1)/P
    reduce_scatter,  ///< [S] -> [S/P]; sends S (P-1)/P
    all_to_all,      ///< [S] -> [S], block i goes to member i; sends S (P-1)/P
    broadcast,       ///< from member `peer`
    send,            ///< operand 0 to member `peer` of `axis`; sends S
    receive,         ///< operand 0 from member `peer` of `axis`
};
ORRERY_API std::string_view name_of(Do what);

struct Instruction {
    Do what = Do::kernel;
    int queue = 0;              ///< 0: compute; 1...: communication
    int kernel = none;          ///< kernel: index into RankClass::kernels
    std::vector<Operand> operands;
    AxisId axis = none;         ///< communication: over this axis of the mesh
    ReduceOp reduce = ReduceOp::sum;
    int peer = none;
    int64_t tag = 0;            ///< send, receive: pairs them on one edge
    OpId op = none;             ///< op of the propagated program
    Fragment fragment;
    std::vector<int> waits;     ///< earlier instructions on other queues that must be done first
};

/// Ranks that differ only by coordinate share a stream. Kernels whose attributes depend on the coordinate
/// (`offset`) are patched per rank when they are prepared.
struct RankClass {
    std::vector<int64_t> ranks;
    int stage = 0;
    std::vector<KernelSpec> kernels;  ///< distinct specs, each prepared once
    std::vector<Buffer> buffers;
    std::vector<Instruction> stream;
    int64_t persistent_bytes = 0;
    int64_t scratch_bytes = 0;        ///< without the kernels' own scratch
};

/// A program lowered for a mesh.
struct Plan {
    Program program;  ///< after propagation, with collectives and layouts
    Mesh mesh;
    std::vector<RankClass> classes;
    std::string fingerprint;  ///< SHA-256 of the printed plan, compared by all ranks before step 0

    const RankClass& class_of(int64_t rank) const;
};

}  // namespace orrery
