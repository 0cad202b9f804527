#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// The contributions summed in some bytes, as a hash modulo 2^64: the sum of the contributions' hashes. An op
/// contributes to a sum once per step or once per micro-batch. Different sums collide with probability about 2^-40.
struct Contributions {
    uint64_t once = 0;  ///< hash of contributions made once per step
    uint64_t each = 0;  ///< hash of contributions made per micro-batch: sum of value's hash * base^(micro + 1)
    bool operator==(const Contributions&) const = default;
    Contributions& operator+=(const Contributions& other);
    /// The hash of these contributions if each were made `micros` micro-batches later.
    Contributions later(int64_t micros) const;
};
inline Contributions operator+(Contributions a, const Contributions& b) { return a += b; }
inline Contributions operator-(const Contributions& a, const Contributions& b) {
    return {a.once - b.once, a.each - b.each};
}
/// The hash of a contribution that identifies only micro-batch `micro`; -1: only the step.
Contributions contribution(int64_t micro);

/// Computes the contributions that the bytes of each value must have.
class Sums {
public:
    /// `micros`: micro-batches per step. `further`: number of micro-batches after the step's last one for which
    /// `expected` may also be called. `in_loop`: for each op, whether it runs in every micro-batch.
    Sums(const Plan& plan, AxisId micro_axis, int64_t micros, int64_t further, std::vector<char> in_loop);

    /// The hash of the contribution that the value's op makes in micro-batch `micro` (-1: once per step).
    Contributions made(ValueId value, int64_t micro) const;
    /// The hash of the contributions that a reader of the value in micro-batch `micro` must find (-1: after the last
    /// one, when a sum contains those of all micro-batches). nullopt if they differ from byte to byte.
    std::optional<Contributions> expected(ValueId value, int64_t micro);
    /// The difference between `found` and the value's expected contributions: "without %7 grad of micro-batch 1".
    std::string difference(ValueId value, int64_t micro, const Contributions& found);

    /// Whether a kernel of this kind of op only adds its inputs.
    static bool adds(const std::string& kind);
    /// Whether the op's output consists of bytes of its input, unchanged.
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
    size_t width_;  ///< number of columns of the table `known_`
    std::vector<char> in_loop_;
    std::vector<int> rows_;     ///< by value: its row of the table `known_`; none: not yet allocated
    std::vector<Known> known_;  ///< table [row][micro + 1] of known contributions
};

}  // namespace orrery
