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

/// The threads that a rank may use within one kernel.
class Threads {
public:
    /// Runs run(arg, part) once for each part, on up to `parts` threads; returns when all calls have.
    using Team = void (*)(int parts, void (*run)(void* arg, int part), void* arg);

    Threads(int count, Team team) : count_(count), team_(team) {}
    int count() const { return count_; }

    /// Calls f(begin, end) for disjoint ranges that cover [0, n), and returns when all calls have. Each range has at
    /// least `grain` elements, if n does. The ranges depend only on n, grain and count(), so that sums within a range
    /// are reproducible bit for bit. Rethrows what f throws. Allocates nothing.
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

struct KernelCall {
    std::span<const Tensor> operands;  ///< inputs, then outputs, with the types of the spec; dense, row-major
    void* scratch = nullptr;           ///< OpKernel::scratch_bytes bytes, aligned to scratch_alignment
    const Threads* threads = nullptr;  ///< CPU only: threads that the kernel may use
    void* stream = nullptr;  ///< GPU only: the cudaStream_t; operands and scratch are in the memory of the GPU

    template <class T>
    const T* in(size_t i) const {
        return static_cast<const T*>(operands[i].data);
    }
    /// Returns the data of operand `i`. Operands count inputs, then outputs.
    template <class T>
    T* out(size_t i) const {
        return static_cast<T*>(operands[i].data);
    }
};

struct OpKernel {
    /// Runs the kernel, once per launch. It looks nothing up and allocates nothing. On the CPU the work is done when it
    /// returns; on a GPU it is queued on the stream without waiting, and may be captured and run again with the same
    /// addresses. It writes every element of every output, or adds to it when the spec has `accumulate` and
    /// OpDef::accumulates lists the output. An output may be at the address of the input that OpDef::in_place names.
    /// The same operands and number of threads give the same bits.
    std::function<void(const KernelCall&)> launch;
    int64_t scratch_bytes = 0;
};

/// Makes the kernel of one spec, with complete attributes and the types of one rank's shards. `threads`: max threads of
/// a launch, 0 on a GPU. Throws Error with the reason when the spec cannot run.
///
/// Kinds of devices: "cpu"; "cuda"; any other device plugin that asks for kernels by its own name; and "reference",
/// with which the others are compared: there all floats are f64, one thread runs, and speed does not matter.
using KernelMaker = std::function<OpKernel(const KernelSpec& spec, int threads)>;

/// Returns make(T(), C()). T is the element type; C is the type to compute in: float for f32, bf16 and f16 (elements
/// BFloat16 and Float16), double for f64. Throws Error naming the op for a type that is not a float.
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

/// For devices: returns why the operands have the wrong number or types for the op (OpDef::types), or why it cannot
/// accumulate; else, or for an unknown op, "". `no_f64`: why the device lacks f64 (operands a and * may be f64), or "".
ORRERY_API std::string wrong_operands(const KernelSpec& spec, std::string_view no_f64 = "");

/// For devices: returns the kernel of a plugin op; nullopt when no plugin has an op of this name. Throws Error when the
/// op has no kernel for this kind of device, naming the kinds that it has, and passes on exceptions of the maker.
ORRERY_API std::optional<OpKernel> plugin_kernel(const KernelSpec& spec, std::string_view device_kind, int threads);

}  // namespace orrery
