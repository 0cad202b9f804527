#include "run/verify/float_distance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "orrery/half.h"

namespace orrery {
namespace {

template <class T>
T load(const void* data, int64_t i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
}

template <class T>
void store(void* data, int64_t i, T value) {
    std::memcpy(static_cast<char*>(data) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

/// Random numbers by splitmix64.
struct Draws {
    uint64_t state;
    uint64_t next() {
        uint64_t x = state += 0x9e3779b97f4a7c15u;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
    }
};

}  // namespace

double number_at(DType dtype, const void* data, int64_t i) {
    switch (dtype) {
        case DType::f32: return static_cast<double>(load<float>(data, i));
        case DType::f64: return load<double>(data, i);
        case DType::bf16: return static_cast<double>(widen_bf16(load<uint16_t>(data, i)));
        case DType::f16: return static_cast<double>(widen_f16(load<uint16_t>(data, i)));
        case DType::i32: return load<int32_t>(data, i);
        case DType::i64: return static_cast<double>(load<int64_t>(data, i));
        case DType::u32: return load<uint32_t>(data, i);
        case DType::u16: return load<uint16_t>(data, i);
        case DType::u8: return load<uint8_t>(data, i);
        case DType::i8: return load<int8_t>(data, i);
        case DType::f8e4m3: return static_cast<double>(widen_f8e4m3(load<uint8_t>(data, i)));
        case DType::f8e5m2: return static_cast<double>(widen_f8e5m2(load<uint8_t>(data, i)));
    }
    return 0;
}

void set_number(DType dtype, void* data, int64_t i, float value) {
    const auto put = [&](auto number) { static_cast<decltype(number)*>(data)[i] = number; };
    if (dtype == DType::f64) put(static_cast<double>(value));
    if (dtype == DType::f32) put(value);
    if (dtype == DType::bf16) put(narrow_bf16(value));
    if (dtype == DType::f16) put(narrow_f16(value));
    if (dtype == DType::f8e4m3) put(narrow_f8e4m3(value));
    if (dtype == DType::f8e5m2) put(narrow_f8e5m2(value));
}

Difference difference(DType dtype, const void* have, const void* want, int64_t count, const char* left_out) {
    Difference d;
    d.count = count;
    const int64_t item = size_of(dtype);
    double squares = 0, norm = 0, worst = -1;
    for (int64_t i = 0; i < count; ++i) {
        const double y = number_at(dtype, want, i);
        d.left_out += left_out && left_out[i];
        // An infinite element, as the lse of a query that sees no key, must be equal: it widens no tolerance.
        norm += std::isinf(y) ? 0 : y * y;
        if (!std::isinf(y) && std::abs(y) > d.largest) d.largest = std::abs(y);
        const char* a = static_cast<const char*>(have) + i * item;
        const char* b = static_cast<const char*>(want) + i * item;
        if (std::memcmp(a, b, item) == 0) continue;
        ++d.unequal;
        if (left_out && left_out[i]) continue;
        const double x = number_at(dtype, have, i);
        double far = std::abs(x - y);
        if (std::isnan(far)) far = std::isnan(x) && std::isnan(y) ? 0 : std::numeric_limits<double>::infinity();
        squares += far * far;
        if (far > worst) worst = far, d.worst = i, d.have = x, d.want = y;
    }
    d.distance = std::sqrt(squares);
    d.norm = std::sqrt(norm);
    return d;
}

double epsilon_of(DType dtype) {
    switch (dtype) {
        case DType::f32: return 0x1p-23;
        case DType::f64: return 0x1p-52;
        case DType::bf16: return 0x1p-7;
        case DType::f16: return 0x1p-10;
        default: return 0;
    }
}

void jitter(DType dtype, void* data, int64_t count, double relative, uint64_t seed) {
    Draws draws{seed};
    if (dtype == DType::f32) {
        for (int64_t i = 0; i < count; ++i) {
            const double sign = draws.next() & 1 ? 1 : -1;
            store(data, i, static_cast<float>(static_cast<double>(load<float>(data, i)) * (1 + sign * relative)));
        }
    } else if (dtype == DType::bf16 || dtype == DType::f16) {
        const double few = 4.0 / static_cast<double>(count);
        const double flips = std::min(1.0, std::max(few, relative / epsilon_of(dtype)));
        const uint16_t infinity = dtype == DType::bf16 ? 0x7f80 : 0x7c00;
        for (int64_t i = 0; i < count; ++i) {
            const uint64_t draw = draws.next();
            const auto half = load<uint16_t>(data, i);
            const uint16_t body = half & 0x7fff;
            if (static_cast<double>(draw >> 11) * 0x1p-53 >= flips || body == 0 || body + 1 >= infinity) continue;
            store(data, i, static_cast<uint16_t>(draw & 1 ? half + 1 : half - 1));
        }
    }
}

std::string index_text(const Shape& shape, int64_t element) {
    Shape at(shape.size());
    for (size_t d = shape.size(); d-- > 0; element /= shape[d]) at[d] = element % shape[d];
    return text_of(at);
}

}  // namespace orrery
