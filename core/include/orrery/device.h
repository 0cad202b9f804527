#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/error.h"
#include "orrery/tensor.h"

namespace orrery {

/// The kind of memory of an arena. A transport says which kinds it can use; the device allocates it.
enum class MemoryKind : uint8_t {
    device,  ///< the device's own memory
    pinned,  ///< host memory that the device and a network card reach
    shared,  ///< host memory that other processes of this host can map
};

constexpr int64_t scratch_alignment = 256;  ///< of allocate() and of the scratch given to launch(), in bytes

/// One allocation. `handle` (a name or a /proc path) lets another process map `shared` memory; else empty.
struct Memory {
    void* data = nullptr;
    int64_t bytes = 0;
    MemoryKind kind = MemoryKind::device;
    std::string handle;
};

/// Completes queued work: a device queue or a communicator.
class ORRERY_API EventSource {
public:
    virtual ~EventSource();
    /// True when the work of this ticket is done. Throws the error of that work.
    virtual bool done(uint64_t ticket) = 0;
    /// Blocks until the work is done. Throws its error, or Fault::peer on the timeout of the owner.
    virtual void wait(uint64_t ticket) = 0;
    /// The vendor's handle (cudaEvent_t), for which a device queue can wait; nullptr when only the host can wait.
    virtual void* native(uint64_t) { return nullptr; }
};

/// A handle to queued work, passed by value. An empty event stands for work that is already done.
struct Event {
    EventSource* owner = nullptr;
    uint64_t ticket = 0;

    bool done() const { return !owner || owner->done(ticket); }
    void wait() const {
        if (owner) owner->wait(ticket);
    }
    void* native() const { return owner ? owner->native(ticket) : nullptr; }
};

/// One kernel for a device to run: an op of the table in core/ir/README.md with its attributes and operand types.
/// Operands are the inputs followed by the outputs. An output may alias the input that OpDef::in_place names.
struct KernelSpec {
    std::string op;
    Attributes attributes;
    std::vector<TensorType> inputs;
    std::vector<TensorType> outputs;

    bool operator==(const KernelSpec&) const = default;
};

/// A kernel that one device has prepared from a spec. Launching it looks nothing up and allocates nothing.
class ORRERY_API Kernel {
public:
    virtual ~Kernel();
    /// Bytes of scratch that each launch needs, aligned to scratch_alignment.
    virtual int64_t scratch_bytes() const { return 0; }
    /// Which implementation runs, when the device had a choice: "cuDNN", "own kernel: cuDNN has no engine"; "" when it
    /// had none. For a captured step: which configuration key of the device runs its kernels one by one, for messages.
    virtual std::string how() const { return ""; }
};

struct DeviceLimits {
    std::string name;  ///< "EPYC, 2 threads", "NVIDIA H200"
    int64_t memory_bytes = 0;
    int threads = 1;              ///< CPU threads of this rank
    double matrix_flops_f32 = 0;  ///< measured rate of dense GEMMs in FLOP/s, 0 when not measured
    double matrix_flops_bf16 = 0;
    double copy_bytes_per_s = 0;
    bool host_visible = true;  ///< host code may access device memory
    int64_t used_bytes = 0;    ///< bytes of memory_bytes that all processes use now; 0: not known
};

/// The GEMM backends of a device that has more than one. A backend is a library or own code together with its
/// arithmetic. Backends differ in speed and in the last bits of sums.
struct ProductKinds {
    std::vector<std::string> names;  ///< values of the key `products` of [device.NAME], the default first
    std::string in_use;              ///< the one in use
};

/// Owns memory and queues. There are about ten functions, because ops are data (KernelSpec) and not virtual functions.
/// One thread uses a device. Errors are Fault::failed and name the kernel.
///
/// Queue 0 takes kernels and copies, queue 1 copies that run alongside. Queues from `first_free_queue` on, as many as
/// are used, only wait and record: an event recorded there is done when all that the queue waited for is.
class ORRERY_API Device {
public:
    static constexpr int copy_queue = 1, first_free_queue = 2;
    virtual ~Device();
    virtual DeviceLimits limits() = 0;
    /// Aligned to scratch_alignment, not initialized. Throws Fault::failed naming the bytes requested and free.
    virtual Memory allocate(int64_t bytes, MemoryKind kind) = 0;
    virtual void release(Memory& memory) = 0;

    /// "" when the device can run the spec, otherwise the reason ("bf16 softmax needs ...").
    virtual std::string why_not(const KernelSpec& spec) = 0;
    /// Prepares the kernel of a spec. Throws Error with the text of why_not().
    virtual std::unique_ptr<Kernel> prepare(const KernelSpec& spec) = 0;
    /// Queues one launch, or runs it before returning (CPU). `operands`: inputs then outputs, as in the spec.
    /// `scratch`: aligned to scratch_alignment, unused when the kernel needs none.
    virtual void launch(int queue, Kernel& kernel, std::span<const Tensor> operands, void* scratch) = 0;

    /// Queues a copy between any two memories of this device and the host.
    virtual void copy(int queue, void* to, const void* from, int64_t bytes) = 0;
    /// Returns an event for the work queued so far.
    virtual Event record(int queue) = 0;
    /// The gate event of a queue: it stands for the work that was queued when gate() was last called. A captured step
    /// that waits for it waits again at each launch. Any thread may wait for it. Empty when the device has no gates.
    virtual Event gate(int) { return {}; }
    /// Makes later work of the queue wait for the event. Blocks the host only when there is no other way.
    virtual void wait(int queue, const Event& event) = 0;
    /// Blocks until the queue is empty.
    virtual void synchronize(int queue) = 0;
    /// The vendor's handle (cudaStream_t), nullptr on CPU.
    virtual void* native(int queue) = 0;

    /// The GEMM backends it can use and the one in use; empty when there is no choice.
    virtual ProductKinds products() { return {}; }
    /// "name=value" lines with everything its speed depends on: processor, microcode, libraries, this code, threads.
    virtual std::string machine() { return ""; }
    /// "name=value" lines with all else that the last bits of results depend on: processor, libraries, keys.
    virtual std::string arithmetic() { return ""; }

    /// True when the device can capture a step. A run then tries to, on every rank with such a device.
    virtual bool captures() { return false; }
    /// Records what `work` queues instead of running it: kernels, copies, and messages that queues can wait for. `work`
    /// must not wait on the host and must make queue 0 wait for all else that it queues. Returns a kernel without
    /// operands that runs all of it, or nullptr with the reason in `why_not`. Called when captures() is true.
    virtual std::unique_ptr<Kernel> capture(const std::function<void()>& work, std::string& why_not);
};

}  // namespace orrery
