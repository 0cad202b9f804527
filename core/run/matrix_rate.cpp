#include "run/matrix_rate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ir/flops.h"
#include "run/preflight/rank_checks.h"

namespace orrery {

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
    constexpr double seconds = 0.3, warm_s = 1;
    const DeviceLimits limits = device.limits();
    const double f32 = limits.matrix_flops_f32;
    if (f32 == 0) return 0;
    if (!limits.host_visible) return measured_matrix_rate(device, dtype, seconds, warm_s);
    if (dtype == DType::f32) return f32;
    const bool stated = dtype == DType::bf16 && limits.matrix_flops_bf16 > 0;
    return std::max(f32, stated ? limits.matrix_flops_bf16 : measured_matrix_rate(device, dtype, seconds));
}

std::string rates_apart(DType dtype, double first, double last) {
    constexpr double apart = 0.05;
    if (std::abs(last - first) <= apart * first) return "";
    return fmt::format(
        "products of {} matrices ran at {:.1f} TFLOP/s after the last step, and at {:.1f} before the first, which MFU "
        "is relative to: its clock has changed, or others use the device",
        name_of(dtype), last / 1e12, first / 1e12);
}

}  // namespace orrery
