#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orrery/plan.h"

namespace orrery {

/// What the bytes of a value are summed from, as a number: each contribution (what an op made in one micro-batch) has a
/// hash, and a sum has that of its parts added up modulo 2^64. Two different sums agree by chance once in 2^64.
class Sums {
public:
    /// `in_loop`, by op: runs in every micro-batch.
    Sums(const Plan& plan, AxisId micro_axis, std::vector<char> in_loop);

    /// What an op makes of this value in micro-batch `micro` (-1: once a step).
    uint64_t made(ValueId value, int64_t micro) const;
    /// What a reader in micro-batch `micro` (-1: after the last) must find: of a sum all that it is made of, after the
    /// loop of every micro-batch. nullopt where that differs from byte to byte.
    std::optional<uint64_t> expected(ValueId value, int64_t micro);
    /// "without %7 grad of micro-batch 1": how `found` differs from what is expected.
    std::string difference(ValueId value, int64_t micro, uint64_t found);

    /// Kernels that only add what others have made.
    static bool adds(const std::string& kind);
    /// The op hands its input's bytes on, all or some, whoever does it.
    bool passes(const Op& op) const;

private:
    struct Known {
        enum class State : uint8_t { no, yes, varies } state = State::no;
        uint64_t sum = 0;
    };
    bool varies(ValueId value) const;
    Known compute(ValueId value, int64_t micro);
    std::string subset(const std::vector<ValueId>& parts, int64_t micro, uint64_t found);
    void leaves(ValueId value, std::vector<ValueId>& all) const;
    ValueId input(const Op& op, int64_t& micro) const;

    const Plan& plan_;
    AxisId micro_axis_;
    int64_t micros_;
    std::vector<char> in_loop_;
    std::vector<int> rows_;     ///< by value: its row of known_, which it gets when it is asked for; none
    std::vector<Known> known_;  ///< [row][micro + 1]
};

}  // namespace orrery
