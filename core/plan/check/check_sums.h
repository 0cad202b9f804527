#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// What bytes are summed from, as numbers modulo 2^64: each contribution (what an op made once, or in one micro-batch)
/// has a hash, and a sum has that of its parts added up. Two different sums agree by chance about once in 2^40.
struct Contributions {
    uint64_t once = 0;  ///< of what is made once a step
    uint64_t each = 0;  ///< of what is made in each micro-batch: a value's hash times base^(micro + 1)
    bool operator==(const Contributions&) const = default;
    Contributions& operator+=(const Contributions& other);
    /// The same of micro-batches that are so many later.
    Contributions later(int64_t micros) const;
};
inline Contributions operator+(Contributions a, const Contributions& b) { return a += b; }
inline Contributions operator-(const Contributions& a, const Contributions& b) {
    return {a.once - b.once, a.each - b.each};
}
/// One that stands for the micro-batch itself, -1 for the step.
Contributions contribution(int64_t micro);

/// What the bytes of a value are summed from.
class Sums {
public:
    /// `micros`: micro-batches of a step; readers in `further` ones may ask, too. `in_loop`, by op: runs in every
    /// micro-batch.
    Sums(const Plan& plan, AxisId micro_axis, int64_t micros, int64_t further, std::vector<char> in_loop);

    /// What an op makes of this value in micro-batch `micro` (-1: once a step).
    Contributions made(ValueId value, int64_t micro) const;
    /// What a reader in micro-batch `micro` (-1: after the last) must find: of a sum all that it is made of, after the
    /// loop of every micro-batch. nullopt where that differs from byte to byte.
    std::optional<Contributions> expected(ValueId value, int64_t micro);
    /// "without %7 grad of micro-batch 1": how `found` differs from what is expected.
    std::string difference(ValueId value, int64_t micro, const Contributions& found);

    /// Kernels that only add what others have made.
    static bool adds(const std::string& kind);
    /// The op hands its input's bytes on, all or some, whoever does it.
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
    size_t width_;  ///< of a row of known_
    std::vector<char> in_loop_;
    std::vector<int> rows_;     ///< by value: its row of known_, which it gets when it is asked for; none
    std::vector<Known> known_;  ///< [row][micro + 1]
};

}  // namespace orrery
