#include "standin/reduce.h"

#include <cstdint>

#include "kernels/types.h"

namespace orrery::standin {

namespace {

template <class T>
T joined(ncclRedOp_t op, T a, T b) {
    switch (op) {
        case ncclMax: return a < b ? b : a;
        case ncclMin: return b < a ? b : a;
        case ncclSum: break;
    }
    return static_cast<T>(a + b);
}

template <class T>
void combine_as(ncclRedOp_t op, void* a, const void* b, size_t count) {
    auto* const to = static_cast<T*>(a);
    const auto* const from = static_cast<const T*>(b);
    for (size_t i = 0; i < count; ++i) {
        if constexpr (requires { to_float(T{}); }) {
            const float sum = joined(op, to_float(to[i]), to_float(from[i]));
            if constexpr (std::is_same_v<T, kernels::bf16>)
                to[i] = kernels::to_bf16(sum);
            else
                to[i] = kernels::to_f16(sum);
        } else {
            to[i] = joined(op, to[i], from[i]);
        }
    }
}

}  // namespace

size_t size_of(ncclDataType_t type) {
    switch (type) {
        case ncclUint8: return 1;
        case ncclFloat16:
        case ncclBfloat16: return 2;
        case ncclInt32:
        case ncclUint32:
        case ncclFloat32: return 4;
        case ncclInt64:
        case ncclFloat64: return 8;
    }
    return 0;
}

void combine(ncclDataType_t type, ncclRedOp_t op, void* a, const void* b, size_t count) {
    switch (type) {
        case ncclUint8: return combine_as<uint8_t>(op, a, b, count);
        case ncclFloat16: return combine_as<kernels::f16>(op, a, b, count);
        case ncclBfloat16: return combine_as<kernels::bf16>(op, a, b, count);
        case ncclInt32: return combine_as<int32_t>(op, a, b, count);
        case ncclUint32: return combine_as<uint32_t>(op, a, b, count);
        case ncclFloat32: return combine_as<float>(op, a, b, count);
        case ncclInt64: return combine_as<int64_t>(op, a, b, count);
        case ncclFloat64: return combine_as<double>(op, a, b, count);
    }
}

}  // namespace orrery::standin
