#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "orrery/dtype.h"

namespace orrery {

using Shape = std::vector<int64_t>;

[[noreturn]] ORRERY_API void throw_too_large(const Shape& shape);

/// Number of elements: the product of the sizes, 1 for a scalar. Throws Error when it exceeds 64 bits.
constexpr int64_t count_of(const Shape& shape) {
    int64_t n = 1;
    for (int64_t size : shape)
        if (__builtin_mul_overflow(n, size, &n)) throw_too_large(shape);
    return n;
}

/// Number of bytes of a tensor with this type and shape. Throws Error when it exceeds 64 bits.
constexpr int64_t byte_count(DType dtype, const Shape& shape) {
    int64_t n = count_of(shape);
    if (__builtin_mul_overflow(n, size_of(dtype), &n)) throw_too_large(shape);
    return n;
}

/// Formats a shape: "[8,512]".
ORRERY_API std::string text_of(const Shape& shape);

/// Element type and shape, without data. Its text is "f32[8,512]".
struct TensorType {
    DType dtype = DType::f32;
    Shape shape;

    int64_t count() const { return count_of(shape); }
    int64_t bytes() const { return byte_count(dtype, shape); }
    ORRERY_API std::string text() const;
    bool operator==(const TensorType&) const = default;
};

/// A dense, row-major tensor that does not own its data. `data` is in the memory of the device that runs the work.
struct Tensor {
    void* data = nullptr;
    DType dtype = DType::f32;
    Shape shape;

    int64_t count() const { return count_of(shape); }
    int64_t bytes() const { return byte_count(dtype, shape); }
};

using Attribute = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;

/// The attributes of an op: a small map sorted by key, so that equal ops print the same text.
class ORRERY_API Attributes {
public:
    Attributes() = default;
    Attributes(std::initializer_list<std::pair<std::string, Attribute>> items);

    void set(std::string_view key, Attribute value);
    void erase(std::string_view key);
    const Attribute* find(std::string_view key) const;  ///< value of an attribute; nullptr when absent
    bool has(std::string_view key) const { return find(key) != nullptr; }

    /// Return the attribute `key`, or the fallback when it is absent. Throw Error naming the key for a wrong type.
    bool flag(std::string_view key, bool fallback = false) const;
    int64_t integer(std::string_view key, int64_t fallback = 0) const;
    double number(std::string_view key, double fallback = 0) const;
    std::string text(std::string_view key, std::string_view fallback = "") const;
    std::vector<int64_t> integers(std::string_view key) const;

    const std::vector<std::pair<std::string, Attribute>>& items() const { return items_; }
    bool operator==(const Attributes&) const = default;

private:
    std::vector<std::pair<std::string, Attribute>> items_;
};

}  // namespace orrery
