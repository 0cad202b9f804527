// Numbers for the operands of sample calls.
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "interpreter.h"
#include "ir/op.h"

namespace orrery::test {

/// n numbers in [0, 1), no two of them nearer than 0.4 / n: what depends on the largest has a slope.
inline std::vector<double> apart(int64_t n, std::mt19937& random) {
    std::vector<double> all;
    for (int64_t i = 0; i < n; ++i)
        all.push_back((static_cast<double>(i) + std::uniform_real_distribution<double>(0.2, 0.8)(random)) /
                      static_cast<double>(n));
    std::shuffle(all.begin(), all.end(), random);
    return all;
}

/// An operand of this type, floats in f64: drawn as asked; else floats of either sign with 0.1 <= |x| < 1.3 and whole
/// numbers 0 or 1. Equal seeds give equal numbers.
inline Array drawn(const TensorType& type, const std::optional<Draw>& asked, unsigned seed) {
    Array array(widened(type));
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> share(0, 1);
    const bool real = is_float(type.dtype);
    const std::vector<double> shares = apart(type.count(), random);
    const Draw range = asked.value_or(real ? Draw{0.1, 1.3} : Draw{0, 1});
    for (int64_t i = 0; i < array.type.count(); ++i) {
        if (real) {
            const double size = range.low + (range.high - range.low) * shares[static_cast<size_t>(i)];
            array.f64()[i] = asked || random() % 2 ? size : -size;
            continue;
        }
        const double number = range.low + std::floor((range.high - range.low + 1) * share(random));
        if (size_of(type.dtype) == 4)
            array.i32()[i] = static_cast<int32_t>(number);
        else if (size_of(type.dtype) == 1)
            array.data[static_cast<size_t>(i)] = static_cast<char>(static_cast<int>(number));
        else
            throw Error("samples draw floats, i32, u32 and bytes, not " + type.text());
    }
    return array;
}

}  // namespace orrery::test
