#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace orrery::test {

/// Whether few of the drawn cases are to run: `scripts/test --address` and `--thread` say so, whose runs are many times
/// slower. `scripts/test` and `--address --long` run all.
inline bool few_cases() { return std::getenv("ORRERY_FEW_CASES") != nullptr; }

/// How many of `all` drawn cases run: all, or a tenth.
inline uint64_t cases(uint64_t all) { return few_cases() ? std::max<uint64_t>(1, all / 10) : all; }

}  // namespace orrery::test
