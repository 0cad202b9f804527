#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace orrery {

/// An order of rows in which equal contiguous parts have nearly equal sums of `costs`. The rows are paired, the largest
/// with the smallest, the second largest with the second smallest; the pairs are paired in the same way by their sums,
/// and so on, until one group has all rows:
///
///     costs  8 1 5 2 6 3 7 4  ->  8 1 | 7 2 | 6 3 | 5 4  ->  8 1 5 4 | 7 2 6 3  ->  8 1 5 4 7 2 6 3
///
/// So every half, quarter, eighth is made of whole groups. Where the number of rows has odd prime factors, the first
/// groups have that many members, dealt to and fro. Depends on the costs alone; of equal costs the first row comes
/// first. O(n log n).
std::vector<int64_t> equal_parts(std::span<const int64_t> costs);

}  // namespace orrery
