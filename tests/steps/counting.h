#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "orrery/communicator.h"

namespace orrery::steps {

/// A device that counts what the host asks of another one beside kernels. Pinned memory is the host's.
class CountingDevice : public Device {
public:
    explicit CountingDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}

    int64_t uploads = 0, downloads = 0, synchronizes = 0;

    DeviceLimits limits() override { return inner_->limits(); }
    Memory allocate(int64_t bytes, MemoryKind kind) override {
        Memory memory = inner_->allocate(bytes, kind);
        if (kind != MemoryKind::pinned) arenas_.push_back(memory);
        return memory;
    }
    void release(Memory& memory) override {
        std::erase_if(arenas_, [&](const Memory& arena) { return arena.data == memory.data; });
        inner_->release(memory);
    }
    std::string why_not(const KernelSpec& spec) override { return inner_->why_not(spec); }
    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override { return inner_->prepare(spec); }
    void launch(int queue, Kernel& kernel, std::span<const Tensor> operands, void* scratch) override {
        inner_->launch(queue, kernel, operands, scratch);
    }
    void copy(int queue, void* to, const void* from, int64_t bytes) override {
        uploads += own(to) && !own(from);
        downloads += own(from) && !own(to);
        inner_->copy(queue, to, from, bytes);
    }
    Event record(int queue) override { return inner_->record(queue); }
    void wait(int queue, const Event& event) override { inner_->wait(queue, event); }
    void synchronize(int queue) override {
        ++synchronizes;
        inner_->synchronize(queue);
    }
    void* native(int queue) override { return inner_->native(queue); }
    bool captures() override { return inner_->captures(); }
    std::unique_ptr<Kernel> capture(const std::function<void()>& work, std::string& why_not) override {
        return inner_->capture(work, why_not);
    }

private:
    bool own(const void* data) const {
        const auto* at = static_cast<const char*>(data);
        for (const Memory& arena : arenas_) {
            const auto* begin = static_cast<const char*>(arena.data);
            if (at >= begin && at < begin + arena.bytes) return true;
        }
        return false;
    }

    std::unique_ptr<Device> inner_;
    std::vector<Memory> arenas_;
};

/// A store that counts what is asked of another one. Whether a rank is lost a rank's own link knows.
class CountingRendezvous : public Rendezvous {
public:
    explicit CountingRendezvous(Rendezvous& inner) : inner_(inner) {}

    std::atomic<int64_t> calls{0};

    void set(std::string_view key, std::string_view value) override {
        ++calls;
        inner_.set(key, value);
    }
    std::string get(std::string_view key, std::chrono::milliseconds timeout) override {
        ++calls;
        return inner_.get(key, timeout);
    }
    int64_t add(std::string_view key, int64_t amount) override {
        ++calls;
        return inner_.add(key, amount);
    }
    std::optional<std::string> look(std::string_view key, std::chrono::milliseconds timeout) override {
        ++calls;
        return inner_.look(key, timeout);
    }
    void erase(std::string_view key) override {
        ++calls;
        inner_.erase(key);
    }
    Message lost() const override { return inner_.lost(); }

private:
    Rendezvous& inner_;
};

}  // namespace orrery::steps
