#include "sim/distance.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

namespace orrery {
namespace {

/// Returns a number for each key: distinct keys are numbered from 0 in the order in which they first appear.
template <class Key>
std::vector<int> numbered(const std::vector<Key>& keys) {
    std::map<Key, int> numbers;
    std::vector<int> all;
    for (const Key& key : keys) all.push_back(numbers.try_emplace(key, static_cast<int>(numbers.size())).first->second);
    return all;
}

/// Splits classes of ranks: ranks of a class stay together if their groups along the axis have the same classes.
std::vector<int> refined(const Mesh& mesh, AxisId axis, int64_t stride, const std::vector<int>& classes) {
    const int64_t size = mesh.size(axis);
    std::vector<std::vector<int>> lines;
    std::vector<int> line_of(classes.size());
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
        if (rank / stride % size != 0) continue;
        std::vector<int> line;
        for (int64_t m = 0; m < size; ++m) {
            const auto member = static_cast<size_t>(rank + m * stride);
            line.push_back(classes[member]);
            line_of[member] = static_cast<int>(lines.size());
        }
        lines.push_back(std::move(line));
    }
    const std::vector<int> kinds = numbered(lines);
    std::vector<std::pair<int, int>> keys;
    for (size_t rank = 0; rank < classes.size(); ++rank)
        keys.emplace_back(classes[rank], kinds[static_cast<size_t>(line_of[rank])]);
    return numbered(keys);
}

}  // namespace

std::vector<int> classes_by_distance(const Plan& plan, const std::map<int64_t, double>& slow,
                                     const std::vector<int>& kinds) {
    const Mesh& mesh = plan.mesh;
    const auto kind_of = [&](size_t rank) { return kinds.empty() ? 0 : kinds[rank]; };
    std::vector<std::tuple<int, double, int>> keys(static_cast<size_t>(mesh.ranks()));
    for (size_t k = 0; k < plan.classes.size(); ++k)
        for (const int64_t rank : plan.classes[k].ranks) {
            const auto found = slow.find(rank);
            const auto at = static_cast<size_t>(rank);
            keys[at] = {static_cast<int>(k), found == slow.end() ? 1 : found->second, kind_of(at)};
        }
    std::vector<int> classes = numbered(keys);
    const bool one_kind = std::adjacent_find(kinds.begin(), kinds.end(), std::not_equal_to<>()) == kinds.end();
    if (slow.empty() && one_kind) return classes;
    for (std::vector<int> before; before != classes;) {
        before = classes;
        int64_t stride = 1;
        for (size_t a = mesh.axes().size(); a-- > 0;) {
            if (mesh.axes()[a].sequential) continue;
            classes = refined(mesh, static_cast<AxisId>(a), stride, classes);
            stride *= mesh.axes()[a].size;
        }
    }
    return classes;
}

}  // namespace orrery
