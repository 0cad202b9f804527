#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// The contributions to some bytes, as a hash modulo 2^64. Each contribution, made by an op once or in one micro-batch,
/// has a hash; the hash of a sum is the sum of the hashes. Different sums collide with probability about 2^-40.
struct Contributions {
    uint64_t once = 0;  ///< hash of contributions made once per step
    uint64_t each = 0;  ///< hash of those made per micro-batch: value's hash * base^(micro + 1)
    bool operator==(const Contributions&) const = default;
    Contributions& operator+=(const Contributions& other);
    /// The same contributions, `micros` micro-batches later.
    Contributions later(int64_t micros) const;
};
inline Contributions operator+(Contributions a, const Contributions& b) { return a += b; }
inline Contributions operator-(const Contributions& a, const Contributions& b) {
    return {a.once - b.once, a.each - b.each};
}
/// A contribution that identifies only the micro-batch, or the step if `micro` is -1.
Contributions contribution(int64_t micro);

/// Computes the contributions that the bytes of each value must have.
class Sums {
public:
    /// `micros`: micro-batches per step. `further`: number of later micro-batches for which `expected` may also be
    /// called. `in_loop`: by op, whether it runs in every micro-batch.
    Sums(const Plan& plan, AxisId micro_axis, int64_t micros, int64_t further, std::vector<char> in_loop);

    /// The contribution of the op that computes the value in micro-batch `micro` (-1: once per step).
    Contributions made(ValueId value, int64_t micro) const;
    /// The contributions that a reader in micro-batch `micro` must find (-1: after the last one, where a sum contains
    /// those of all micro-batches). nullopt if they differ from byte to byte.
    std::optional<Contributions> expected(ValueId value, int64_t micro);
    /// The difference between `found` and the expected contributions as text: "without %7 grad of micro-batch 1".
    std::string difference(ValueId value, int64_t micro, const Contributions& found);

    /// Whether a kernel only adds its inputs.
    static bool adds(const std::string& kind);
    /// Whether the op only passes on bytes of its input, all or some.
    bool passes(const Op& op) const;

private:
    struct Known {
        enum class State : uint8_t { no, yes, varies } state = State::no;
        Contributions sum;
    };
    bool varies(ValueId value) const;
    Known compute(ValueId value, int64_t micro);
    std::string subset(const std::vector<ValueId>& parts, int64_t micro, const Contributions& found);
    void leaves(ValueId value, std::vector<ValueId>& all) const;
    ValueId input(const Op& op, int64_t& micro) const;

    const Plan& plan_;
    AxisId micro_axis_;
    int64_t micros_;
    size_t width_;  ///< entries per row of known_
    std::vector<char> in_loop_;
    std::vector<int> rows_;     ///< by value: its row in known_; none: not allocated yet
    std::vector<Known> known_;  ///< [row][micro + 1]
};

}  // namespace orrery
