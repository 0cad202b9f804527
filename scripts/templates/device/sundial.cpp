// The device sundial: host memory, one queue that is the calling thread, and a table of kernels. An op that the table
// lacks is refused with the reason before anything starts; add ops until the models that you need run.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "orrery/plugin.h"

namespace {

using namespace orrery;

/// A kernel of the table: operands are the inputs, then the outputs, in f32.
using Run = void (*)(const KernelSpec& spec, std::span<const Tensor> operands);

float* floats(const Tensor& t) { return static_cast<float*>(t.data); }

/// [n], [n] -> [n]
void add_values(const KernelSpec&, std::span<const Tensor> t) {
    for (int64_t i = 0; i < t[2].count(); ++i) floats(t[2])[i] = floats(t[0])[i] + floats(t[1])[i];
}

/// [n], [n] -> [n]
void multiply_values(const KernelSpec&, std::span<const Tensor> t) {
    for (int64_t i = 0; i < t[2].count(); ++i) floats(t[2])[i] = floats(t[0])[i] * floats(t[1])[i];
}

/// [m,k], [k,n] -> [m,n]
void multiply_matrices(const KernelSpec&, std::span<const Tensor> t) {
    const int64_t m = t[0].shape[0], k = t[0].shape[1], n = t[1].shape[1];
    std::fill_n(floats(t[2]), m * n, 0.0f);
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < k; ++j)
            for (int64_t c = 0; c < n; ++c)
                floats(t[2])[i * n + c] += floats(t[0])[i * k + j] * floats(t[1])[j * n + c];
}

/// One line for each op. `plain`: attributes that change what the kernel does are refused.
struct Entry {
    std::string_view op;
    size_t inputs;  ///< ops with optional operands come with more, and do more then
    size_t rank;    ///< of its operands; 0: any
    Run run;
};
constexpr Entry table[] = {
    {"add", 2, 0, add_values},
    {"mul", 2, 0, multiply_values},
    {"matmul", 2, 2, multiply_matrices},
};

const Entry* find(const KernelSpec& spec) {
    const auto* found =
        std::find_if(std::begin(table), std::end(table), [&](const Entry& e) { return e.op == spec.op; });
    return found == std::end(table) ? nullptr : found;
}

struct Prepared final : Kernel {
    Prepared(KernelSpec s, Run r) : spec(std::move(s)), run(r) {}
    KernelSpec spec;
    Run run;
};

class Sundial final : public Device {
public:
    DeviceLimits limits() override { return {.name = "sundial"}; }

    Memory allocate(int64_t bytes, MemoryKind kind) override {
        if (kind == MemoryKind::shared)
            throw Error("device sundial has no memory that other processes can map", Fault::failed);
        constexpr int64_t to = scratch_alignment;
        const auto rounded = static_cast<size_t>((std::max<int64_t>(bytes, 1) + to - 1) / to * to);
        void* data = std::aligned_alloc(to, rounded);
        if (!data) throw Error("device sundial: no " + std::to_string(bytes) + " bytes left", Fault::failed);
        return {data, bytes, kind, ""};
    }
    void release(Memory& memory) override {
        std::free(memory.data);
        memory = {};
    }

    std::string why_not(const KernelSpec& spec) override {
        const Entry* entry = find(spec);
        if (!entry) return "device sundial has no kernel for " + spec.op;
        // add and mul spread a smaller operand, and any op may have attributes: say no to what the kernel does not do.
        if (!spec.attributes.items().empty()) return "device sundial has no attributes of " + spec.op;
        if (spec.inputs.size() != entry->inputs)
            return "device sundial computes " + spec.op + " of " + std::to_string(entry->inputs) + " operands only";
        for (const auto* types : {&spec.inputs, &spec.outputs})
            for (const TensorType& type : *types) {
                if (type.dtype != DType::f32) return "device sundial computes " + spec.op + " in f32 only";
                if (entry->rank != 0 && type.shape.size() != entry->rank)
                    return "device sundial needs operands of rank " + std::to_string(entry->rank) + " for " + spec.op;
                if (entry->rank == 0 && type.shape != spec.outputs[0].shape)
                    return "device sundial needs operands of one shape for " + spec.op;
            }
        return "";
    }

    std::unique_ptr<Kernel> prepare(const KernelSpec& spec) override {
        if (const std::string reason = why_not(spec); !reason.empty()) throw Error(reason);
        return std::make_unique<Prepared>(spec, find(spec)->run);
    }

    void launch(int, Kernel& kernel, std::span<const Tensor> operands, void*) override {
        const auto& prepared = static_cast<Prepared&>(kernel);
        prepared.run(prepared.spec, operands);
    }

    void copy(int, void* to, const void* from, int64_t bytes) override {
        if (bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
    }

    // Work is done when launch returns: an empty event is one that is over.
    Event record(int) override { return {}; }
    void wait(int, const Event& event) override { event.wait(); }
    void synchronize(int) override {}
    void* native(int) override { return nullptr; }
};

void add(Registry& registry) {
    registry.add_device("sundial", [](Config&) { return std::make_unique<Sundial>(); });
}

}  // namespace

// Its memory is the host's, and making one leaves nothing in the process; leave out what does not hold.
ORRERY_FACTS("host_memory leaves_nothing");
ORRERY_PLUGIN("device.sundial", "0.1", add);
