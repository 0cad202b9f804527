#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// The contributions that are summed in some bytes, as a hash: the sum modulo 2^64 of the hashes of contributions. An
/// op contributes once per step or once per micro-batch. Different sums collide with probability about 2^-40.
struct Contributions {
    uint64_t once = 0;  ///< contributions made once per step: sum of their hashes
    uint64_t each = 0;  ///< contributions made per micro-batch: sum of value's hash * base^(micro + 1)
    bool operator==(const Contributions&) const = default;
    Contributions& operator+=(const Contributions& other);
    /// These contributions, each made `micros` micro-batches later.
    Contributions later(int64_t micros) const;
};
inline Contributions operator+(Contributions a, const Contributions& b) { return a += b; }
inline Contributions operator-(const Contributions& a, const Contributions& b) {
    return {a.once - b.once, a.each - b.each};
}
/// The hash of a contribution in micro-batch `micro` (-1: once per step), the same for all ops.
Contributions contribution(int64_t micro);

/// Computes which contributions must be summed in the bytes of each value.
class Sums {
public:
    /// `micros`: micro-batches per step. `further`: number of micro-batches beyond the step for which `expected` may be
    /// called. `in_loop`: by op, whether it runs in every micro-batch.
    Sums(const Plan& plan, AxisId micro_axis, int64_t micros, int64_t further, std::vector<char> in_loop);

    /// What the op of the value contributes in micro-batch `micro` (-1: once per step).
    Contributions made(ValueId value, int64_t micro) const;
    /// What a reader of the value in micro-batch `micro` must find in its bytes. -1: after the last micro-batch, when a
    /// sum has the contributions of all. nullopt if they differ from byte to byte.
    std::optional<Contributions> expected(ValueId value, int64_t micro);
    /// How `found` differs from the expected contributions of the value: "without %7 grad of micro-batch 1".
    std::string difference(ValueId value, int64_t micro, const Contributions& found);

    /// Whether kernels of this op only add their inputs, and so contribute nothing of their own.
    static bool adds(const std::string& kind);
    /// Whether the output of the op consists of unchanged bytes of its input.
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
    size_t width_;
    std::vector<char> in_loop_;
    std::vector<int> rows_;     ///< by value: its row of `known_`; none: has no row yet
    std::vector<Known> known_;  ///< contributions known so far: [row][micro + 1]
};

}  // namespace orrery
