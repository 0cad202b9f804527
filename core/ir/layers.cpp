// The layers of a model in order, found from the scopes of its ops.
#include <algorithm>
#include <unordered_map>

#include "ir/flops.h"
#include "ir/layers.h"
#include "orrery/strategy.h"

namespace orrery {

namespace {

/// The part of a scope up to its first number: "h.3" for "h.3.attn.q"; "" if it has no number.
std::string numbered(const std::string& scope) {
    for (size_t begin = 0; begin < scope.size();) {
        const size_t end = std::min(scope.find('.', begin), scope.size());
        const bool number =
            std::all_of(scope.begin() + begin, scope.begin() + end, [](char c) { return c >= '0' && c <= '9'; });
        if (number && end > begin) return scope.substr(0, end);
        begin = end + 1;
    }
    return "";
}

std::string outermost(const std::string& scope) { return scope.substr(0, scope.find('.')); }

bool has_numbered(const Program& program) {
    return std::any_of(program.ops.begin(), program.ops.end(),
                       [](const Op& op) { return op.phase == Phase::forward && !numbered(op.scope).empty(); });
}

}  // namespace

std::vector<int> layers_of_ops(const Program& program) {
    const bool any = has_numbered(program);
    std::unordered_map<std::string, int> ids;
    std::vector<int> of;
    of.reserve(program.ops.size());
    for (const Op& op : program.ops) {
        std::string scope = any ? numbered(op.scope) : "";
        if (scope.empty()) scope = outermost(op.scope);
        of.push_back(scope.empty() ? none : ids.try_emplace(std::move(scope), ids.size()).first->second);
    }
    return of;
}

std::vector<Layer> layers(const Program& program) {
    const bool any = has_numbered(program);
    std::vector<Layer> row{{}};
    std::unordered_map<std::string, size_t> places;
    double behind = 0;
    for (const Op& op : program.ops) {
        if (op.phase != Phase::forward) continue;
        const auto cost = static_cast<double>(forward_flops(program, op));
        const std::string scope = any ? numbered(op.scope) : outermost(op.scope);
        if (scope.empty()) {
            behind += cost;
            continue;
        }
        const auto [place, fresh] = places.try_emplace(scope, row.size());
        row.back().flops += behind;  // FLOPs of ops between two layers count with the earlier layer
        behind = 0;
        if (fresh) row.push_back({scope, 0});
        row[place->second].flops += cost;
    }
    row.push_back({"", behind});
    return row;
}

}  // namespace orrery
