#include "run/data/equal_parts.h"

#include <algorithm>

namespace orrery {
namespace {

struct Group {
    int64_t sum = 0;
    std::vector<int64_t> rows;
};

/// Makes groups of `members` groups each: deals them by falling sums to and fro, so that the largest meets the
/// smallest.
std::vector<Group> grouped(std::vector<Group> groups, size_t members) {
    std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.sum > b.sum; });
    const size_t count = groups.size() / members;
    std::vector<Group> made(count);
    for (size_t i = 0; i < groups.size(); ++i) {
        const size_t round = i / count, at = i % count;
        Group& to = made[round % 2 == 0 ? at : count - 1 - at];
        to.sum += groups[i].sum;
        to.rows.insert(to.rows.end(), groups[i].rows.begin(), groups[i].rows.end());
    }
    return made;
}

}  // namespace

std::vector<int64_t> equal_parts(std::span<const int64_t> costs) {
    if (costs.empty()) return {};
    std::vector<Group> groups;
    for (size_t i = 0; i < costs.size(); ++i) groups.push_back({costs[i], {static_cast<int64_t>(i)}});
    size_t odd = costs.size();
    while (odd % 2 == 0) odd /= 2;
    for (size_t factor = 3; odd > 1; factor += 2)
        for (; odd % factor == 0; odd /= factor) groups = grouped(std::move(groups), factor);
    while (groups.size() > 1) groups = grouped(std::move(groups), 2);
    return std::move(groups.front().rows);
}

}  // namespace orrery
