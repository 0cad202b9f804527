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

/// Where an arena lives. A transport says which kind it wants; the device allocates it so.
enum class MemoryKind : uint8_t {
    device,  ///< the device's own memory
    pinned,  ///< host memory that the device and a network card reach
    shared,  ///< host memory that other processes of this host can map
};

constexpr int64_t scratch_alignment = 256;  ///< of what allocate() gives and launch() takes as scratch, in bytes

/// One allocation. `handle` lets another process map `shared` memory (a name or /proc path); empty otherwise.
struct Memory {
    void* data = nullptr;
    int64_t bytes = 0;
    MemoryKind kind = MemoryKind::device;
    std::string handle;
};

/// Whoever completes queued work: a device queue or a communicator.
class ORRERY_API EventSource {
public:
    virtual ~EventSource();
    /// True when the work behind the ticket is done. Throws the work's own error.
    virtual bool done(uint64_t ticket) = 0;
    /// Blocks until done, at most for the owner's timeout. Throws the work's own error, or Fault::peer on timeout.
    virtual void wait(uint64_t ticket) = 0;
    /// The vendor's handle (cudaEvent_t) that a device's queue can wait for; nullptr: only the host can wait.
    virtual void* native(uint64_t) { return nullptr; }
};

/// Queued work, by value. An empty event is work that is already done.
struct Event {
    EventSource* owner = nullptr;
    uint64_t ticket = 0;

    bool done() const { return !owner || owner->done(ticket); }
    void wait() const {
        if (owner) owner->wait(ticket);
    }
    void* native() const { return owner ? owner->native(ticket) : nullptr; }
};

/// What a device is asked to run: an op of the table in core/ir/README.md with its attributes and operand types.
/// Operands are the inputs followed by the outputs; an output may alias the input that `in_place` of the op names.
struct KernelSpec {
    std::string op;
    Attributes attributes;
    std::vector<TensorType> inputs;
    std::vector<TensorType> outputs;

    bool operator==(const KernelSpec&) const = default;
};

/// A spec resolved by one device: launching it looks nothing up and allocates nothing.
class ORRERY_API Kernel {
public:
    virtual ~Kernel();
    /// Bytes of scratch that each launch needs, at an address that scratch_alignment divides.
    virtual int64_t scratch_bytes() const { return 0; }
    /// Whose code runs where the device had a choice: "cuDNN", "own kernel: cuDNN has no engine". "": there was none.
    /// Of a captured step: which of the device's keys runs its kernels one by one, for messages.
    virtual std::string how() const { return ""; }
};

struct DeviceLimits {
    std::string name;  ///< "EPYC, 2 threads", "NVIDIA H200"
    int64_t memory_bytes = 0;
    int threads = 1;              ///< CPU threads of this rank
    double matrix_flops_f32 = 0;  ///< measured dense rate in FLOP/s, 0 when not measured
    double matrix_flops_bf16 = 0;
    double copy_bytes_per_s = 0;
    bool host_visible = true;  ///< host code may touch device memory
    int64_t used_bytes = 0;    ///< of memory_bytes, by everybody, at this moment; 0: not known
};

/// The kinds of matrix products of a device that has more than one: by which library or code, in which arithmetic. They
/// differ in speed and in the last bits of sums.
struct ProductKinds {
    std::vector<std::string> names;  ///< values of the key `products` of [device.NAME], the default first
    std::string in_use;              ///< one of them
};

/// Owns memory and queues. About ten functions: the op surface is data (KernelSpec), not virtual functions.
/// One thread drives a device. Errors are Fault::failed and name the kernel.
///
/// Queue 0 takes kernels and copies, queue 1 copies beside it. From `first_free_queue` on there are as many as somebody
/// names, for waits and records alone: what was recorded there is done when all that the queue waited for is.
class ORRERY_API Device {
public:
    static constexpr int copy_queue = 1, first_free_queue = 2;
    virtual ~Device();
    virtual DeviceLimits limits() = 0;
    /// Aligned as scratch is, contents undefined. Throws Fault::failed naming the bytes asked for and those free.
    virtual Memory allocate(int64_t bytes, MemoryKind kind) = 0;
    virtual void release(Memory& memory) = 0;

    /// "" when the spec can run here; otherwise the reason ("bf16 softmax needs ...").
    virtual std::string why_not(const KernelSpec& spec) = 0;
    /// Resolves a spec. Throws Error with why_not's text.
    virtual std::unique_ptr<Kernel> prepare(const KernelSpec& spec) = 0;
    /// Queues one launch. `operands`: inputs then outputs, as in the spec; `scratch`: a multiple of scratch_alignment,
    /// unused where the kernel needs none. May run inline (CPU).
    virtual void launch(int queue, Kernel& kernel, std::span<const Tensor> operands, void* scratch) = 0;

    /// Queues a copy between any two of this device's and the host's memories.
    virtual void copy(int queue, void* to, const void* from, int64_t bytes) = 0;
    /// Marks the work queued so far.
    virtual Event record(int queue) = 0;
    /// One event for each queue that stands for what was queued there when gate() was called last. A captured step that
    /// waits for it waits anew at each launch; any thread may wait for it. Empty: the device has none.
    virtual Event gate(int) { return {}; }
    /// Makes later work of the queue wait for the event; blocks the host only where it must.
    virtual void wait(int queue, const Event& event) = 0;
    /// Blocks until the queue is empty.
    virtual void synchronize(int queue) = 0;
    /// The vendor's handle (cudaStream_t), nullptr on CPU.
    virtual void* native(int queue) = 0;

    /// The kinds of matrix products that it has, and the one in use; empty where there is no choice.
    virtual ProductKinds products() { return {}; }
    /// "name=value" lines of what its speed depends on: processor, microcode, libraries, this code, threads.
    virtual std::string machine() { return ""; }
    /// "name=value" lines of what else the last bits of results depend on: processor, instructions, libraries, keys.
    virtual std::string arithmetic() { return ""; }

    /// Steps are captured here: every rank of a run with such devices asks for it.
    virtual bool captures() { return false; }
    /// Records what `work` queues instead of running it: kernels, copies, and messages that queues can wait for. `work`
    /// must not wait on the host and must make queue 0 wait for all else that it queues. Returns a kernel without
    /// operands that runs all of it; or nullptr, with the reason in `why_not`. Called where captures() is true.
    virtual std::unique_ptr<Kernel> capture(const std::function<void()>& work, std::string& why_not);
};

}  // namespace orrery
