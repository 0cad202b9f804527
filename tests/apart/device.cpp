#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "apart/apart.h"
#include "plugins/device/cpu/resolve.h"

namespace orrery::apart {

namespace {

class ApartKernel : public Kernel {
public:
    ApartKernel(cpu_device::Launch launch, int64_t scratch, std::string own, int64_t lasts)
        : launch(std::move(launch)), scratch(scratch), own(std::move(own)), lasts(lasts) {}
    int64_t scratch_bytes() const override { return scratch; }
    std::string how() const override { return own; }
    cpu_device::Launch launch;
    int64_t scratch;
    std::string own;
    int64_t lasts;
};

class RecordedKernel : public Kernel {
public:
    std::string how() const override { return "device.apart.capture = false names the kernel"; }
    std::shared_ptr<Recording> recording;
};

/// Where ORRERY_APART_KINDS is set: one kind of products that runs, and one that faults whatever the flags say.
ProductKinds kinds_of(Config& config) {
    const std::string named = config.text("products", "plain");
    if (!std::getenv("ORRERY_APART_KINDS")) return {};
    return {{"plain", "faulty"}, named};
}

int64_t pages(int64_t bytes) { return (std::max<int64_t>(bytes, 1) + 4095) / 4096 * 4096; }

void* map(int64_t bytes, int access) {
    void* const data = ::mmap(nullptr, static_cast<size_t>(bytes), access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw Error("device apart: no " + std::to_string(bytes) + " bytes", Fault::failed);
    return data;
}

class ApartDevice : public Device, public EventSource {
public:
    ApartDevice(Config& config, std::shared_ptr<Timeline> timeline)
        : timeline_(std::move(timeline)),
          reference_(config.flag("reference", false)),
          capture_(config.flag("capture", true)),
          scratch_(config.integer("scratch", 0)),
          replay_fails_(config.flag("replay_fails", false)),
          kinds_(kinds_of(config)),
          context_(static_cast<int>(std::max<int64_t>(1, config.integer("threads", 1)))),
          kernels_(reference_ ? kernels::reference::table() : kernels::cpu::table()) {
        config.integer("local_rank", 0);
    }

    ~ApartDevice() override {
        while (!arenas_.empty()) {
            Memory last = arenas_.back();
            release(last);
        }
    }

    DeviceLimits limits() override {
        DeviceLimits limits;
        limits.name = "a device apart";
        limits.memory_bytes = int64_t{1} << 34;
        limits.threads = context_.threads();
        limits.host_visible = false;
        for (const Memory& memory : arenas_) limits.used_bytes += memory.bytes;
        return limits;
    }

    Memory allocate(int64_t bytes, MemoryKind kind) override {
        if (recorded_) throw Error("device apart: memory is allocated in a recorded step", Fault::failed);
        if (kind == MemoryKind::shared) throw Error("device apart: it shares no memory", Fault::failed);
        void* const kept = map(pages(bytes), PROT_READ | PROT_WRITE);
        std::memset(kept, 0xff, static_cast<size_t>(pages(bytes)));  // NaN, where somebody counts on zeros
        Memory memory{kept, bytes, kind, {}};
        if (kind == MemoryKind::device) {
            memory.data = map(pages(bytes), PROT_NONE);
            memory.handle = std::to_string(reinterpret_cast<uintptr_t>(kept));
        }
        arenas_.push_back(memory);
        return memory;
    }

    void release(Memory& memory) override {
        for (auto& [number, queue] : queues_) queue.drain();
        const auto at =
            std::find_if(arenas_.begin(), arenas_.end(), [&](const Memory& m) { return m.data == memory.data; });
        if (at == arenas_.end()) return;
        const auto size = static_cast<size_t>(pages(at->bytes));
        if (at->kind == MemoryKind::device) ::munmap(real(arenas_, at->data), size);
        ::munmap(at->data, size);
        arenas_.erase(at);
        memory = {};
    }

    std::string why_not(const KernelSpec& spec) override {
        try {
            cpu_device::resolve(spec, kernels_, reference_);
            return "";
        } catch (const Error& error) {
            return error.what();
        }
    }

    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override {
        return std::make_unique<ApartKernel>(cpu_device::resolve(spec, kernels_, reference_), scratch_,
                                             spec.op == "matmul" ? "own kernel: there is no library here" : "",
                                             timeline_ ? timeline_->kernel(spec) : 0);
    }

    void launch(int number, Kernel& kernel, std::span<const Tensor> operands, void* scratch) override {
        if (reinterpret_cast<uintptr_t>(scratch) % scratch_alignment != 0)
            throw Error("device apart: a kernel's scratch is not aligned", Fault::failed);
        if (auto* const recorded = dynamic_cast<RecordedKernel*>(&kernel)) {
            if (replay_fails_) throw Error("device apart: a kernel touched what is not its own", Fault::failed);
            return recorded->recording->replay(host());
        }
        std::vector<Tensor> tensors(operands.begin(), operands.end());
        for (Tensor& tensor : tensors) tensor.data = own(tensor.data, "a kernel's operand");
        auto& own_kernel = static_cast<ApartKernel&>(kernel);
        if (kinds_.in_use == "faulty") ::raise(SIGILL);
        void* const kept = own_kernel.scratch > 0 ? own(scratch, "a kernel's scratch") : nullptr;
        queue(number, [this, tensors, kept, &own_kernel](int64_t& now) {
            // Whoever counts on what lies there gets NaN.
            if (kept) std::memset(kept, 0xff, static_cast<size_t>(own_kernel.scratch));
            own_kernel.launch(context_, tensors);
            now += own_kernel.lasts;
        });
    }

    void copy(int number, void* to, const void* from, int64_t bytes) override {
        if (bytes <= 0) return;
        void* const target = real(arenas_, to);
        const void* const source = real(arenas_, const_cast<void*>(from));
        if (recorded_ && (target == to || source == from))
            throw Error("device apart: a recorded step copies from or to the host", Fault::failed);
        queue(number, [=](int64_t&) { std::memcpy(target, source, static_cast<size_t>(bytes)); });
    }

    Event record(int number) override {
        const auto mark = std::make_shared<Mark>();
        Queue& queue = queues_[number];
        if (recorded_ && recorded_->takes_part(queue)) {
            mark->recorded = true;
            mark->recording = recorded_;
            recorded_->set(queue, mark);
        } else {
            queue.add([mark](int64_t& now) { mark->set(now); }, host());
        }
        const std::lock_guard lock(mutex_);
        marks_[++ticket_] = mark;
        if (marks_.size() > 4096) marks_.erase(marks_.begin());
        return {this, ticket_};
    }

    Event gate(int number) override {
        const uint64_t ticket = last_gate - static_cast<uint64_t>(number);
        std::shared_ptr<Mark> mark;
        {
            const std::lock_guard lock(mutex_);
            std::shared_ptr<Mark>& kept = marks_[ticket];
            if (!kept) kept = std::make_shared<Mark>();
            mark = kept;
        }
        mark->reset();
        queues_[number].add([mark](int64_t& now) { mark->set(now); }, host());
        return {this, ticket};
    }

    void wait(int number, const Event& event) override {
        auto* const mark = static_cast<Mark*>(event.native());
        if (!mark) return event.wait();
        Queue& queue = queues_[number];
        if (mark->recorded) {
            if (!recorded_ || mark->recording.lock() != recorded_)
                throw Error("device apart: what is not recorded waits for what is", Fault::failed);
            return recorded_->wait(queue, mark->shared_from_this());
        }
        Work join = [mark = mark->shared_from_this()](int64_t& now) { now = std::max(now, mark->join()); };
        const bool gate = event.owner == this && event.ticket > last_gate - gates;
        if (!recorded_ || !recorded_->takes_part(queue)) return queue.add(std::move(join), host());
        if (!gate) throw Error("device apart: a recorded step waits for what is not recorded", Fault::failed);
        recorded_->add(queue, std::move(join));
    }

    void synchronize(int number) override {
        if (recorded_) throw Error("device apart: the host waits in a recorded step", Fault::failed);
        waited(queues_[number].drain());
    }
    void* native(int) override { return this; }

    ProductKinds products() override { return kinds_; }

    bool captures() override { return true; }
    std::unique_ptr<Kernel> capture(const std::function<void()>& work, std::string& why_not) override {
        why_not = capture_ ? "" : "device.apart.capture is false";
        if (!capture_) return nullptr;
        auto kernel = std::make_unique<RecordedKernel>();
        kernel->recording = recorded_ = std::make_shared<Recording>(queues_[0]);
        try {
            work();
            if (recorded_->loose()) why_not = "queue 0 does not wait for all messages";
        } catch (const std::exception& error) {
            why_not = error.what();
        }
        recorded_->over = true;
        recorded_ = nullptr;
        if (!why_not.empty()) return nullptr;
        return kernel;
    }

    bool done(uint64_t ticket) override { return mark(ticket).done(); }
    void wait(uint64_t ticket) override { waited(mark(ticket).wait()); }
    void* native(uint64_t ticket) override { return &mark(ticket); }

private:
    static constexpr uint64_t gates = 64, last_gate = ~uint64_t{0};  ///< their tickets are none of record()'s

    Mark& mark(uint64_t ticket) {
        const std::lock_guard lock(mutex_);
        return *marks_.at(ticket);
    }

    void* own(void* data, const char* what) const {
        void* const kept = real(arenas_, data);
        if (kept == data && data)
            throw Error(std::string("device apart: ") + what + " lies in host memory", Fault::failed);
        return kept;
    }

    void queue(int number, Work work) {
        Queue& queue = queues_[number];
        if (recorded_ && recorded_->takes_part(queue))
            recorded_->add(queue, std::move(work));
        else
            queue.add(std::move(work), host());
    }

    int64_t host() const { return timeline_ ? timeline_->host : 0; }
    void waited(int64_t until) {
        if (timeline_) timeline_->host = std::max(timeline_->host, until);
    }

    std::shared_ptr<Timeline> timeline_;
    bool reference_, capture_;
    int64_t scratch_;
    bool replay_fails_;
    ProductKinds kinds_;
    kernels::Context context_;
    const kernels::Kernels& kernels_;
    std::vector<Memory> arenas_;
    std::mutex mutex_;
    std::map<uint64_t, std::shared_ptr<Mark>> marks_;
    uint64_t ticket_ = 0;
    std::shared_ptr<Recording> recorded_;
    std::map<int, Queue> queues_;  ///< made when they are named first
};

}  // namespace

void* real(std::span<const Memory> arenas, void* data) {
    auto* const address = static_cast<char*>(data);
    for (const Memory& arena : arenas) {
        auto* const begin = static_cast<char*>(arena.data);
        if (arena.handle.empty() || address < begin || address >= begin + pages(arena.bytes)) continue;
        return reinterpret_cast<char*>(std::stoull(arena.handle)) + (address - begin);
    }
    return data;
}

std::unique_ptr<Device> make_device(Config& config, std::shared_ptr<Timeline> timeline) {
    return std::make_unique<ApartDevice>(config, std::move(timeline));
}

}  // namespace orrery::apart
