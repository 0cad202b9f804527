// Numbers, operands and the context of a kernel call.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <span>

/// Marks a function that both the host and a CUDA device can run.
#if defined(__CUDACC__)
#define ORRERY_HOST_DEVICE __host__ __device__ inline
#else
// Always inlined, so that a copy compiled for AVX-512 never runs on a machine without it.
#define ORRERY_HOST_DEVICE [[gnu::always_inline]] inline
#endif

namespace orrery::kernels {

/// bfloat16: the upper half of a float. Storage only: convert, compute, convert back.
struct bf16 {
    std::uint16_t bits;
};

/// IEEE binary16. Storage only.
struct f16 {
    std::uint16_t bits;
};

/// Exact.
ORRERY_HOST_DEVICE float to_float(bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

/// Rounds to nearest even; a NaN stays a (quiet) NaN.
ORRERY_HOST_DEVICE bf16 to_bf16(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
    return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

/// Exact, subnormals included.
ORRERY_HOST_DEVICE float to_float(f16 x) {
    const std::uint32_t sign = (x.bits & 0x8000u) << 16;
    const std::uint32_t rest = x.bits & 0x7fffu;
    if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest < 0x400u) {  // zero or subnormal: rest * 2^-24
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(rest) * 0x1p-24f) | sign);
    }
    return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
}

/// Rounds to nearest even; overflow gives infinity, a NaN stays a NaN.
ORRERY_HOST_DEVICE f16 to_f16(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    const std::uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
    if (a >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
    if (a < 0x38800000u) {  // subnormal: adding 0.5 aligns the last place of the sum with 2^-24
        const float y = std::bit_cast<float>(a) + 0.5f;
        return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(y) - 0x3f000000u))};
    }
    return {static_cast<std::uint16_t>(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13))};
}

/// Floats of 8 bits, which are codes with a scale (kernels/codes.h).
struct f8e4m3 {
    std::uint8_t bits;
};
struct f8e5m2 {
    std::uint8_t bits;
};

enum class Type : std::uint8_t { f32, f64, bf16, f16, i32, u32, u8, i8, f8e4m3, f8e5m2 };

constexpr std::int64_t size_of(Type t) {
    switch (t) {
        case Type::f64: return 8;
        case Type::bf16:
        case Type::f16: return 2;
        case Type::u8:
        case Type::i8:
        case Type::f8e4m3:
        case Type::f8e5m2: return 1;
        default: return 4;
    }
}

constexpr Type type_of(const float*) { return Type::f32; }
constexpr Type type_of(const double*) { return Type::f64; }
constexpr Type type_of(const bf16*) { return Type::bf16; }
constexpr Type type_of(const f16*) { return Type::f16; }
constexpr Type type_of(const std::int32_t*) { return Type::i32; }
constexpr Type type_of(const std::uint32_t*) { return Type::u32; }
constexpr Type type_of(const std::uint8_t*) { return Type::u8; }
constexpr Type type_of(const std::int8_t*) { return Type::i8; }
constexpr Type type_of(const f8e4m3*) { return Type::f8e4m3; }
constexpr Type type_of(const f8e5m2*) { return Type::f8e5m2; }

/// A dense operand that is read.
struct In {
    const void* data = nullptr;
    Type type = Type::f32;

    In() = default;
    In(const void* p, Type t) : data(p), type(t) {}
    template <class T>
    In(const T* p) : data(p), type(type_of(p)) {}
    template <class T>
    const T* as() const {
        return static_cast<const T*>(data);
    }
};

/// A dense operand that is written. May be the same memory as an input if the kernel allows it.
struct Out {
    void* data = nullptr;
    Type type = Type::f32;

    Out() = default;
    Out(void* p, Type t) : data(p), type(t) {}
    template <class T>
    Out(T* p) : data(p), type(type_of(p)) {}
    template <class T>
    T* as() const {
        return static_cast<T*>(data);
    }
    operator In() const { return {data, type}; }
};

/// Sizes, outermost first; at most 8 dims.
using Shape = std::span<const std::int64_t>;
constexpr int max_dims = 8;

/// The part of a value in this call: element i of dim d is element offset[d]+i of global[d]. Empty global: the whole
/// value. With `places` [local[0], local[1]], the elements (i, j) of dims 0 and 1 are element places[i, j] of
/// global[1], and global is not empty.
struct Region {
    Shape local;
    Shape global = {};
    Shape offset = {};
    const std::int32_t* places = nullptr;
};

/// How matrix products run on a processor. Their sums differ in the last bits.
enum class Products : std::uint8_t {
    onednn,  ///< oneDNN's, in f32: 16-bit operands are widened block by block
    native,  ///< the same, but two 16-bit operands of a type for which oneDNN has a product go to that as they lie
    blocks,  ///< our own packed blocks, in f32: 16-bit operands are widened as they are packed
};
constexpr Products all_products[] = {Products::onednn, Products::native, Products::blocks};

/// Resources of a call: threads and scratch memory. One per calling thread. It owns its scratch, which grows to the
/// largest request, until some is lent.
class Context {
public:
    explicit Context(int threads = 1) : threads_(threads) {}
    int threads() const { return threads_; }
    Products products() const { return products_; }
    void use(Products products) { products_ = products; }
    /// At least `bytes` bytes, aligned to 64, valid until the next call. A kernel calls this once, before it accesses
    /// an operand, even when it needs none. Throws std::length_error when the request exceeds the lent bytes.
    void* scratch(std::int64_t bytes);

    /// From now on scratch is these `bytes` bytes, whose contents may change between calls; nothing is allocated.
    void lend(void* memory, std::int64_t bytes);
    /// From now on `scratch` throws Counted, so that a kernel reports its requirement and does nothing.
    void only_count() { use_ = Use::count; }
    struct Counted {
        std::int64_t bytes;
    };

private:
    struct Free {
        void operator()(void* p) const;
    };
    enum class Use : std::uint8_t { own, lent, count } use_ = Use::own;
    void* lent_ = nullptr;
    int threads_;
    Products products_ = Products::onednn;
    std::unique_ptr<void, Free> memory_;
    std::int64_t capacity_ = 0;
};

}  // namespace orrery::kernels
