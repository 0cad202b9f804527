#include "limits.h"

#include <algorithm>
#include <random>
#include <vector>

#include "failure.h"
#include "kernels/types.h"

namespace orrery::cuda_device {

namespace {

/// GPU memory for a measurement; data is nullptr when there is not enough.
struct Space {
    explicit Space(int64_t bytes) {
        if (cudaMalloc(&data, static_cast<size_t>(bytes)) != cudaSuccess) {
            cudaGetLastError();
            data = nullptr;
        }
    }
    ~Space() { cudaFree(data); }
    Space(const Space&) = delete;
    void* data = nullptr;
};

struct Timer {
    Timer() {
        require(cudaEventCreate(&begin), "making events");
        require(cudaEventCreate(&end), "making events");
    }
    ~Timer() { cudaEventDestroy(begin), cudaEventDestroy(end); }
    Timer(const Timer&) = delete;

    template <class Work>
    double seconds(cudaStream_t stream, Work work) {
        require(cudaEventRecord(begin, stream), "recording an event");
        work();
        require(cudaEventRecord(end, stream), "recording an event");
        require(cudaEventSynchronize(end), "a measurement");
        float milliseconds = 0;
        require(cudaEventElapsedTime(&milliseconds, begin, end), "reading a clock");
        return static_cast<double>(milliseconds) / 1e3;
    }
    cudaEvent_t begin = nullptr, end = nullptr;
};

/// Random numbers: zeros cost less power, so they run faster than any training.
std::vector<char> noise(kernels::Type type, int64_t count) {
    std::mt19937 random(1);
    std::vector<char> bytes(static_cast<size_t>(count * kernels::size_of(type)));
    for (int64_t i = 0; i < count; ++i) {
        const float x = static_cast<float>(random() >> 8) * 0x1p-23f - 1;
        if (type == kernels::Type::f32)
            reinterpret_cast<float*>(bytes.data())[i] = x;
        else
            reinterpret_cast<kernels::bf16*>(bytes.data())[i] = kernels::to_bf16(x);
    }
    return bytes;
}

}  // namespace

double measure_product(kernels::cuda::Context& context, kernels::Type type) {
    const int64_t n = type == kernels::Type::f32 ? 4096 : 8192;
    const int64_t size = n * n * kernels::size_of(type);
    const kernels::cuda::Operand square{type, {n, n}};
    const kernels::cuda::Spec spec{"matmul", {}, {square, square}, {square}};
    if (!kernels::cuda::why_not(spec).empty()) return 0;
    const Space operands(3 * size);
    if (!operands.data) return 0;
    auto* const data = static_cast<char*>(operands.data);
    // One block of noise over and over: drawing all of it would take longer than the products.
    const std::vector<char> block = noise(type, 1 << 20);
    for (int64_t at = 0; at < 2 * size; at += static_cast<int64_t>(block.size()))
        require(cudaMemcpyAsync(data + at, block.data(), block.size(), cudaMemcpyHostToDevice, context.stream()),
                "filling a measurement");
    const auto kernel = kernels::cuda::prepare(context, spec);
    const Space scratch(std::max<int64_t>(256, kernel->scratch_bytes()));
    if (!scratch.data) return 0;
    void* const all[] = {data, data + size, data + 2 * size};
    Timer timer;
    double best = 1e30;
    for (int i = 0; i < 12; ++i)
        best = std::min(best, timer.seconds(context.stream(), [&] { kernel->launch(context, all, scratch.data); }));
    return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / best;
}

double measure_copy(cudaStream_t stream) {
    constexpr int64_t bytes = 512 << 20;
    const Space space(2 * bytes);
    if (!space.data) return 0;
    auto* const data = static_cast<char*>(space.data);
    Timer timer;
    double best = 1e30;
    for (int i = 0; i < 6; ++i)
        best = std::min(best, timer.seconds(stream, [&] {
            require(cudaMemcpyAsync(data + bytes, data, bytes, cudaMemcpyDeviceToDevice, stream), "a measurement");
        }));
    return 2.0 * static_cast<double>(bytes) / best;
}

}  // namespace orrery::cuda_device
