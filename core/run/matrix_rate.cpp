#include "run/matrix_rate.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <vector>

#include "base/seconds.h"
#include "ir/flops.h"

namespace orrery {
namespace {

double measure(Device& device, DType dtype) {
    // A device with its own memory needs larger matrices to keep all its processors busy.
    const int64_t n = device.limits().host_visible ? 1024 : 8192;
    const TensorType square{dtype, {n, n}};
    const auto kernel = device.prepare({"matmul", {}, {square, square}, {square}});
    Memory memory =
        device.allocate(3 * square.bytes() + std::max<int64_t>(64, kernel->scratch_bytes()), MemoryKind::device);
    auto* data = static_cast<char*>(memory.data);
    const std::vector<char> zeros(static_cast<size_t>(2 * square.bytes()), 0);
    device.copy(0, data, zeros.data(), 2 * square.bytes());
    const Tensor operands[] = {
        {data, dtype, {n, n}}, {data + square.bytes(), dtype, {n, n}}, {data + 2 * square.bytes(), dtype, {n, n}}};
    std::vector<double> seconds;
    for (int i = 0; i < 6; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        device.launch(0, *kernel, operands, data + 3 * square.bytes());
        device.synchronize(0);
        if (i > 0) seconds.push_back(seconds_since(begin));
    }
    device.release(memory);
    std::nth_element(seconds.begin(), seconds.begin() + 2, seconds.end());
    return 2.0 * static_cast<double>(n * n) * static_cast<double>(n) / seconds[2];
}

}  // namespace

DType matrix_type(const Program& program) {
    std::map<DType, double> flops;
    for (const Op& op : program.ops) {
        const int64_t count = product_flops(program, op);
        if (count > 0) flops[program.value(op.inputs[0]).type.dtype] += static_cast<double>(count);
    }
    DType most = DType::f32;
    for (const auto& [dtype, count] : flops)
        if (count > flops[most]) most = dtype;
    return most;
}

double matrix_rate(Device& device, DType dtype) {
    const DeviceLimits limits = device.limits();
    if (dtype == DType::f32 || limits.matrix_flops_f32 == 0) return limits.matrix_flops_f32;
    const bool stated = dtype == DType::bf16 && limits.matrix_flops_bf16 > 0;
    return std::max(limits.matrix_flops_f32, stated ? limits.matrix_flops_bf16 : measure(device, dtype));
}

}  // namespace orrery
