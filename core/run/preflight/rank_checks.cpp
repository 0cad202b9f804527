#include "run/preflight/rank_checks.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/seconds.h"
#include "plan/lower/buffers.h"
#include "run/control/address.h"
#include "run/verify/float_distance.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double piece_s = 0.01;  ///< seconds of a timed piece, long compared with queueing overhead
constexpr int64_t least_pieces = 5;

struct DeviceMemory {
    Device& device;
    Memory memory;

    DeviceMemory(Device& device, int64_t bytes) : device(device), memory(device.allocate(bytes, MemoryKind::device)) {}
    ~DeviceMemory() { device.release(memory); }
    DeviceMemory(const DeviceMemory&) = delete;
};

/// How often `work` runs per second after a warm-up of at least `warm_s`: total work over total time, so that a device
/// that sometimes stalls counts as slow.
template <class Work>
double rate_of(Device& device, double seconds, double warm_s, Work work) {
    const auto timed = [&](int64_t calls) {
        const auto begin = Clock::now();
        for (int64_t i = 0; i < calls; ++i) work();
        device.synchronize(0);
        return seconds_since(begin);
    };
    timed(1);
    const auto calls = std::max<int64_t>(1, static_cast<int64_t>(piece_s / std::max(timed(1), 1e-9)));
    int64_t pieces = 0;
    double spent = 0;
    for (double warm = 0; warm < warm_s;) warm += timed(calls);
    for (; spent < seconds || pieces < least_pieces; ++pieces) spent += timed(calls);
    return static_cast<double>(calls * pieces) / spent;
}

/// Operands for timing: small numbers of both signs; with zeros a GPU would run cooler and faster than in training.
std::vector<char> operand_bytes(DType dtype, int64_t count) {
    std::vector<char> bytes(static_cast<size_t>(count * size_of(dtype)));
    uint32_t state = 1;
    const int64_t drawn = std::min(count, int64_t{1} << 20);  // repeated: all would take longer than the products
    for (int64_t i = 0; i < drawn; ++i) {
        state = state * 1664525u + 1013904223u;
        const float value = static_cast<float>(state >> 8) / static_cast<float>(1 << 24) - 0.5f;
        set_number(dtype, bytes.data(), i, value);
    }
    const size_t block = static_cast<size_t>(drawn * size_of(dtype));
    for (size_t at = block; at < bytes.size(); ++at) bytes[at] = bytes[at - block];
    return bytes;
}

}  // namespace

double measured_matrix_rate(Device& device, DType dtype, double seconds, double warm_s) {
    const int64_t n = device.limits().host_visible ? 512 : 8192;
    const TensorType square{dtype, {n, n}};
    const KernelSpec spec{"matmul", {}, {square, square}, {square}};
    if (!device.why_not(spec).empty()) return 0;
    const auto kernel = device.prepare(spec);
    const int64_t size = aligned(square.bytes(), scratch_alignment);
    const DeviceMemory memory(device, 3 * size + std::max<int64_t>(kernel->scratch_bytes(), 1));
    char* const data = static_cast<char*>(memory.memory.data);
    const std::vector<char> filled = operand_bytes(dtype, n * n);
    const Tensor operands[] = {
        {data, dtype, square.shape}, {data + size, dtype, square.shape}, {data + 2 * size, dtype, square.shape}};
    for (int i = 0; i < 2; ++i) device.copy(0, operands[i].data, filled.data(), square.bytes());
    device.synchronize(0);
    const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
    return flops * rate_of(device, seconds, warm_s, [&] { device.launch(0, *kernel, operands, data + 3 * size); });
}

double measured_copy_rate(Device& device, int64_t bytes, double seconds) {
    const DeviceMemory memory(device, 2 * bytes);
    char* const data = static_cast<char*>(memory.memory.data);
    bool back = false;
    const double copies = rate_of(device, seconds, 0, [&] {  // both ways, as pages never written would share memory
        device.copy(0, back ? data : data + bytes, back ? data + bytes : data, bytes);
        back = !back;
    });
    return 2 * static_cast<double>(bytes) * copies;
}

RankFigures check_rank(Device& device, const RankCheckOptions& options,
                       const std::function<void(const char* part)>& before) {
    const auto begin = [&](const char* part) {
        if (before) before(part);
    };
    RankFigures figures;
    figures.host = host_name();
    const DeviceLimits limits = device.limits();
    figures.device = limits.name;
    const int64_t piece = options.copy_bytes > 0 ? options.copy_bytes
                          : limits.host_visible  ? int64_t{64} << 20
                                                 : int64_t{1} << 30;
    begin("matrix products of f32");
    figures.matrix_f32 = measured_matrix_rate(device, DType::f32, options.matrix_s);
    begin("matrix products of bf16");
    figures.matrix_bf16 = measured_matrix_rate(device, DType::bf16, options.matrix_s);
    begin("memory");
    figures.copy_bytes = measured_copy_rate(device, piece, options.copy_s);
    if (!options.folder.empty()) {
        begin("storage");
        check_storage(options, figures);
    }
    return figures;
}

}  // namespace orrery
