// Runs the device's kernels on numbers worked out by hand.
#include <cstdio>

#include "sundial.cpp"

namespace {

/// Allocates the operands on the device, runs the op, returns the output.
std::vector<float> run(Device& device, const std::string& op,
                       const std::vector<std::pair<Shape, std::vector<float>>>& ins, const Shape& out) {
    KernelSpec spec{op, {}, {}, {{DType::f32, out}}};
    std::vector<Memory> memory;
    std::vector<Tensor> operands;
    for (const auto& [shape, numbers] : ins) {
        spec.inputs.push_back({DType::f32, shape});
        memory.push_back(device.allocate(spec.inputs.back().bytes(), MemoryKind::device));
        device.copy(0, memory.back().data, numbers.data(), spec.inputs.back().bytes());
        operands.push_back({memory.back().data, DType::f32, shape});
    }
    memory.push_back(device.allocate(spec.outputs[0].bytes(), MemoryKind::device));
    operands.push_back({memory.back().data, DType::f32, out});
    device.launch(0, *device.prepare(spec), operands, nullptr);
    device.synchronize(0);
    std::vector<float> result(static_cast<size_t>(operands.back().count()));
    device.copy(0, result.data(), memory.back().data, spec.outputs[0].bytes());
    for (Memory& m : memory) device.release(m);
    return result;
}

int check(bool right, const char* what) {
    std::printf("%s %s\n", right ? "ok    " : "WRONG ", what);
    return right ? 0 : 1;
}

}  // namespace

int main() {
    Sundial device;
    using Numbers = std::vector<float>;
    int wrong = check(run(device, "add", {{{3}, {1, 2, 3}}, {{3}, {10, 20, 30}}}, {3}) == Numbers{11, 22, 33}, "add");
    wrong += check(run(device, "mul", {{{2}, {3, -4}}, {{2}, {5, 6}}}, {2}) == Numbers{15, -24}, "mul");
    const Shape square{2, 2};
    wrong += check(
        run(device, "matmul", {{square, {1, 2, 3, 4}}, {square, {5, 6, 7, 8}}}, square) == Numbers{19, 22, 43, 50},
        "matmul");
    KernelSpec spec{"softmax", {}, {{DType::f32, square}}, {{DType::f32, square}}};
    wrong += check(device.why_not(spec) == "device sundial has no kernel for softmax", "what it cannot do is refused");
    spec = {"add", {}, {{DType::bf16, square}, {DType::bf16, square}}, {{DType::bf16, square}}};
    wrong += check(!device.why_not(spec).empty(), "other dtypes are refused");
    Memory memory = device.allocate(100, MemoryKind::device);
    wrong +=
        check(reinterpret_cast<uintptr_t>(memory.data) % scratch_alignment == 0, "memory is aligned as scratch is");
    device.release(memory);
    return wrong == 0 ? 0 : 1;
}
