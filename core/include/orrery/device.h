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

constexpr int64_t scratch_alignment = 256;  ///< alignment in bytes of allocate() and of scratch for launch()

/// One allocation of memory. `handle` (a name or a /proc path) lets another process map MemoryKind::shared; else "".
struct Memory {
    void* data = nullptr;
    int64_t bytes = 0;
    MemoryKind kind = MemoryKind::device;
    std::string handle;
};

/// Tells when queued work is done, for its events: a device or a communicator.
class ORRERY_API EventSource {
public:
    virtual ~EventSource();
    /// True when the work numbered `ticket` is done. Throws the error of that work.
    virtual bool done(uint64_t ticket) = 0;
    /// Blocks until the work numbered `ticket` is done. Throws its error, or Fault::peer when the wait times out.
    virtual void wait(uint64_t ticket) = 0;
    /// The vendor's event (cudaEvent_t), for which a device queue can wait; nullptr when only the host can wait.
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
    /// Name of the implementation that the device chose: "cuDNN", "own kernel: cuDNN has no engine"; "" if it had no
    /// choice. For a captured step: the device's configuration key that turns capturing off, for messages.
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
    /// Bytes of memory_bytes in use by all processes, at most a second ago; 0: not known. Asked for after each step, so
    /// a device should not always wait for its driver.
    int64_t used_bytes = 0;
};

/// The GEMM backends (libraries, or kernels of Orrery) of a device that has more than one. They differ in speed and in
/// the last bits of sums.
struct ProductKinds {
    std::vector<std::string> names;  ///< legal values of the key `products` of [device.NAME], the default first
    std::string in_use;
};

/// Owns the memory and queues of a device. Ops are data (KernelSpec), so that it needs few functions. One thread uses
/// it. Errors are Fault::failed and name the kernel.
///
/// Queue 0 takes kernels and copies, queue 1 copies that run alongside. Queues from `first_free_queue` on only wait and
/// record events: an event recorded there is done when all that the queue waited for is.
class ORRERY_API Device {
public:
    static constexpr int copy_queue = 1, first_free_queue = 2;
    virtual ~Device();
    virtual DeviceLimits limits() = 0;
    /// Allocates memory, aligned to scratch_alignment, not initialized. Throws Fault::failed with bytes asked and free.
    virtual Memory allocate(int64_t bytes, MemoryKind kind) = 0;
    virtual void release(Memory& memory) = 0;

    /// "" when the device can run the spec, otherwise the reason ("bf16 softmax needs ...").
    virtual std::string why_not(const KernelSpec& spec) = 0;
    /// Prepares the kernel of a spec. Throws Error with the reason of why_not() when the device cannot run the spec.
    virtual std::unique_ptr<Kernel> prepare(const KernelSpec& spec) = 0;
    /// Queues one launch of a kernel, or runs it before returning (CPU). `operands`: inputs then outputs, as in the
    /// spec. `scratch`: aligned to scratch_alignment, unused when the kernel needs none.
    virtual void launch(int queue, Kernel& kernel, std::span<const Tensor> operands, void* scratch) = 0;

    /// Queues a copy between any two memories of this device and the host.
    virtual void copy(int queue, void* to, const void* from, int64_t bytes) = 0;
    /// Returns an event that is done when all work queued so far is.
    virtual Event record(int queue) = 0;
    /// Returns the gate of a queue, an event that is done when the work queued at the last call of gate() is. A
    /// captured step that waits for it waits again at each launch. Any thread may wait for it. Empty: no gates.
    virtual Event gate(int) { return {}; }
    /// Makes later work of the queue wait for the event. Blocks the host only when the device cannot wait itself.
    virtual void wait(int queue, const Event& event) = 0;
    /// Blocks until all work of the queue is done.
    virtual void synchronize(int queue) = 0;
    /// The vendor's queue (cudaStream_t), nullptr on CPU.
    virtual void* native(int queue) = 0;

    /// The GEMM backends that the device can use, and the one in use; empty when there is no choice.
    virtual ProductKinds products() { return {}; }
    /// "name=value" lines of what kernel speed depends on: processor, microcode, libraries, this code, threads.
    virtual std::string machine() { return ""; }
    /// "name=value" lines of what the last bits of results depend on in this device: processor, libraries, keys. A
    /// device that may add in an order that changes from run to run has a line "order of sums=any".
    virtual std::string arithmetic() { return ""; }

    /// True when the device can capture a step and replay it. A run then tries to, on every rank with such a device.
    virtual bool captures() { return false; }
    /// Records the kernels, copies and messages that `work` queues, instead of running them. `work` must not wait on
    /// the host and must make queue 0 wait for all that it queues on others. Returns a kernel without operands that
    /// runs all of it, or nullptr with the reason in `why_not`. Called only when captures() is true.
    virtual std::unique_ptr<Kernel> capture(const std::function<void()>& work, std::string& why_not);
};

}  // namespace orrery
