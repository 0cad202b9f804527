#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "orrery/device.h"
#include "orrery/half.h"

namespace orrery {

/// The threads that a rank may use inside one kernel.
class Threads {
public:
    /// Calls run(arg, part) once for each part, on up to `parts` threads; returns when all are done.
    using Team = void (*)(int parts, void (*run)(void* arg, int part), void* arg);

    Threads(int count, Team team) : count_(count), team_(team) {}
    int count() const { return count_; }

    /// Calls f(begin, end) for disjoint ranges that cover [0, n), and returns when all are done. A range has at least
    /// `grain` elements where n has. Where ranges begin follows from n, grain and count() alone, so that sums within
    /// one repeat their bits. What f throws is thrown here. Allocates nothing.
    template <class F>
    void parallel_for(int64_t n, int64_t grain, F f) const {
        if (n <= 0) return;
        const int64_t most = std::max<int64_t>(1, n / std::max<int64_t>(1, grain));
        const int parts = static_cast<int>(std::min<int64_t>(count_, most));
        if (parts <= 1) return f(int64_t{0}, n);
        auto part_of = [&](int part) {
            const int64_t each = n / parts, more = n % parts;
            const int64_t begin = each * part + std::min<int64_t>(part, more);
            f(begin, begin + each + (part < more ? 1 : 0));
        };
        using Part = decltype(part_of);
        team_(
            parts, [](void* arg, int part) { (*static_cast<Part*>(arg))(part); }, &part_of);
    }

private:
    int count_;
    Team team_;
};

/// One launch of an op's kernel.
struct KernelCall {
    std::span<const Tensor> operands;  ///< inputs, then outputs, of the spec's types; dense, row-major
    void* scratch = nullptr;           ///< as many bytes as asked for, at a multiple of scratch_alignment
    const Threads* threads = nullptr;  ///< on the CPU
    void* stream = nullptr;            ///< of a GPU: cudaStream_t; operands and scratch are in its memory

    template <class T>
    const T* in(size_t i) const {
        return static_cast<const T*>(operands[i].data);
    }
    /// Counted among all operands: the first output comes behind the last input.
    template <class T>
    T* out(size_t i) const {
        return static_cast<T*>(operands[i].data);
    }
};

/// A spec resolved: what a launch does, and what it needs.
struct OpKernel {
    /// Called once a launch. Looks nothing up and allocates nothing. On the CPU the work is done when it returns; on a
    /// GPU it is queued on the stream, waits for nothing, and may be captured and run again with the same addresses.
    /// Writes every element of every output; adds to those of the op's `accumulates` where the spec has `accumulate`.
    /// An output may lie where the input does that `in_place` names. The same operands and count of threads give the
    /// same bits.
    std::function<void(const KernelCall&)> launch;
    int64_t scratch_bytes = 0;
};

/// Makes the kernel of one spec. Attributes are complete and types are those of `infer`, of a rank's shard. `threads`:
/// how many a launch may use, 0 on a GPU. Throws Error with the reason where this spec cannot run.
///
/// Kinds of devices: "cpu"; "cuda"; any other device plugin that asks for kernels by its own name; and "reference",
/// which the others are compared with: there all floats are f64, one thread runs, and nothing needs to be fast.
using KernelMaker = std::function<OpKernel(const KernelSpec& spec, int threads)>;

/// Calls make(T(), C()): T holds an element of this type, C computes with it: float for f32, BFloat16 and Float16,
/// double for f64. Throws Error, naming the op, for a type that is no float.
template <class Make>
OpKernel kernel_of_floats(const KernelSpec& spec, DType type, Make make) {
    switch (type) {
        case DType::f32: return make(float(), float());
        case DType::bf16: return make(BFloat16(), float());
        case DType::f16: return make(Float16(), float());
        case DType::f64: return make(double(), double());
        default: throw Error("op " + spec.op + " computes with floats, not with " + std::string(name_of(type)));
    }
}

/// For devices: why these are no operands of the op, in number or types (OpDef::types), or it cannot accumulate; "":
/// they are, or there is no such op. `no_f64`: why it computes nothing in f64, "": it does; a and * may be f64 anyway.
ORRERY_API std::string wrong_operands(const KernelSpec& spec, std::string_view no_f64 = "");

/// For devices: the kernel that a plugin brought for its op. nullopt where no plugin brought an op of this name; throws
/// Error where one did, but has no kernel for this kind of device, with those that it has, and what the maker throws.
ORRERY_API std::optional<OpKernel> plugin_kernel(const KernelSpec& spec, std::string_view device_kind, int threads);

}  // namespace orrery
