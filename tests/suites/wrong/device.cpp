// A device that breaks one rule of orrery/device.h, which its key `fault` names; otherwise the template's.
#include "orrery/plugin.h"
#pragma push_macro("ORRERY_PLUGIN")
#undef ORRERY_PLUGIN
#define ORRERY_PLUGIN(...) static_assert(true)
#include "../scripts/templates/device/sundial.cpp"
#pragma pop_macro("ORRERY_PLUGIN")

namespace {

class Wrong final : public Device, public EventSource {
public:
    explicit Wrong(std::string fault) : fault_(std::move(fault)) {}

    DeviceLimits limits() override { return right_.limits(); }
    Memory allocate(int64_t bytes, MemoryKind kind) override {
        if (fault_ != "alignment") return right_.allocate(bytes, kind);
        Memory memory = right_.allocate(bytes + 64, kind);
        memory.data = static_cast<char*>(memory.data) + 64;
        memory.bytes = bytes;
        return memory;
    }
    void release(Memory& memory) override {
        if (fault_ == "alignment" && memory.data) memory.data = static_cast<char*>(memory.data) - 64;
        right_.release(memory);
    }
    std::string why_not(const KernelSpec& spec) override {
        if (fault_ == "accepts") return "";
        const std::string why = right_.why_not(spec);
        return fault_ == "nameless" && !why.empty() ? "it cannot" : why;
    }
    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override { return right_.prepare(spec); }
    void launch(int queue, Kernel& kernel, std::span<const Tensor> operands, void* scratch) override {
        right_.launch(queue, kernel, operands, scratch);
        const Tensor &input = operands.front(), &output = operands.back();
        if (fault_ == "result") floats(output)[0] += 0.25f;
        if (fault_ == "input") floats(input)[0] += 1;
        if (fault_ == "past") floats(output)[output.count()] = 0;
        if (fault_ == "random") floats(output)[0] += 1e-6f * static_cast<float>(++launches_);
    }
    void copy(int queue, void* to, const void* from, int64_t bytes) override {
        right_.copy(queue, to, from, fault_ == "short" ? bytes / 4 * 4 : bytes);
    }
    Event record(int) override { return fault_ == "event" ? Event{this, 1} : Event(); }
    void wait(int, const Event& event) override { event.wait(); }
    void synchronize(int) override {}
    void* native(int) override { return nullptr; }

    bool done(uint64_t) override { return false; }
    void wait(uint64_t) override {}

private:
    std::string fault_;
    Sundial right_;
    int launches_ = 0;
};

void add_wrong(Registry& registry) {
    registry.add_device("wrong", [](Config& config) { return std::make_unique<Wrong>(config.text("fault", "")); });
}

}  // namespace

ORRERY_PLUGIN("device.wrong", "0.1", add_wrong);
