// Follows which dims have the order of the feed through the forward pass, by the factors of its ops.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/describe.h"
#include "ir/op.h"
#include "layout/token_order.h"

namespace orrery {

namespace {

/// A part of a dim. After a reshape a dim may be the product of several parts, major to minor.
struct DimPart {
    int64_t size = 1;
    bool ordered = false;  ///< its elements are in the order of the feed; otherwise the same in any order
};
using DimParts = std::vector<DimPart>;

class FollowedOrder {
public:
    FollowedOrder(const Program& program, const TokenOrder& order) : program_(program), order_(order) {}

    void run() {
        for (const ValueId id : program_.inputs()) {
            const Value& value = program_.value(id);
            const auto seq = program_.dim(id, "seq");
            if (!seq) continue;
            const int64_t size = value.type.shape[static_cast<size_t>(*seq)];
            const int64_t parts = order_.kind == TokenOrder::Kind::zigzag ? 2 * order_.members : order_.members;
            if (size % parts != 0)
                throw Error(value.origin, fmt::format("rows of {} tokens cannot be in the order {}: {} is not a "
                                                      "multiple of {}\n  use rows of {} tokens, or another order",
                                                      size, order_.text(), size, parts, (size / parts + 1) * parts));
            length_ = size;
            for (size_t d = 0; d < value.dims.size(); ++d)
                dims_[id].push_back({{value.type.shape[d], value.dims[d] == "seq"}});
        }
        for (const Op& op : program_.ops)
            if (op.phase == Phase::forward) follow(op);
    }

private:
    [[noreturn]] void refuse(const Op& op, const std::string& why, const std::string& remedy) const {
        throw Error(op.origin,
                    fmt::format("tokens cannot be in the order {}: {}{} {}\n  {}, or leave the rows in natural order",
                                order_.text(), op.kind, op.scope.empty() ? "" : " in " + op.scope, why, remedy));
    }

    /// For each factor of a dim of an operand, whether it is ordered.
    std::vector<bool> ordered_in(const Op& op, const FactorRule& rule, size_t input, size_t dim) const {
        const std::vector<int>& factors = rule.inputs[input][dim];
        std::vector<bool> ordered(factors.size());
        const auto found = dims_.find(op.inputs[input]);
        if (found == dims_.end()) return ordered;
        int64_t begin = 1;  // product of the factors before
        for (size_t f = 0; f < factors.size(); ++f) {
            const int64_t end = begin * rule.factors[static_cast<size_t>(factors[f])].size;
            int64_t from = 1;
            for (const DimPart& part : found->second[dim]) {
                const int64_t to = from * part.size;
                const bool equal = from == begin && to == end, meet = from < end && begin < to;
                if (part.ordered && meet && !equal) require_groups(op, part, begin, end, from);
                ordered[f] = ordered[f] || (part.ordered && meet && begin == from);
                from = to;
            }
            begin = end;
        }
        return ordered;
    }

    /// Throws Error if an op splits the dim seq, unless into groups of a size that divides the order's block. Then the
    /// dim of groups has the order, and the tokens of a group are in natural order. [begin, end): a factor of the part,
    /// which begins at `from`.
    void require_groups(const Op& op, const DimPart& part, int64_t begin, int64_t end, int64_t from) const {
        const int64_t to = from * part.size, group = to / end;
        if (begin < from || end > to || part.size != length_)
            refuse(op, "splits the dim seq into several dims", "keep seq as one dim");
        const int64_t block = block_of_tokens(order_, length_);
        if (begin > from || block % group == 0) return;
        refuse(
            op,
            fmt::format("splits the dim seq into groups of {} tokens, but the order moves blocks of {}", group, block),
            fmt::format("choose groups of a size that divides {} (a number of groups that is a multiple of {})", block,
                        length_ / block));
    }

    /// Whether the op's kernel depends on the index along a factor, other than as an id to match.
    static bool depends_on_index(const Op& op, const OpDef& def, const FactorRule& rule, int factor) {
        if (!def.indexed || (def.indexed_if && !def.indexed_if(op)) || def.loss) return false;
        if (std::ranges::any_of(rule.factors, [](const Factor& f) { return f.kind == Factor::Kind::index; }))
            return false;
        bool places = false;  // which give the index along dim 1
        for (size_t i = 0; i < op.inputs.size(); ++i) places = places || def.operands[i] == "places?";
        const auto& dims = def.indexed->output ? rule.outputs[static_cast<size_t>(def.indexed->index)]
                                               : rule.inputs[static_cast<size_t>(def.indexed->index)];
        for (size_t d = 0; d < dims.size(); ++d) {
            const bool counts = def.indexed_dim < 0 || d == static_cast<size_t>(def.indexed_dim);
            if (counts && !(places && d == 1) && std::ranges::count(dims[d], factor) > 0) return true;
        }
        return false;
    }

    /// Whether all elements of a value are equal.
    bool constant(ValueId id) const {
        const OpId op = program_.value(id).op;
        if (op == none) return false;
        const OpDef& def = op_def(program_.op(op).kind);
        return def.source && !def.indexed;
    }

    void follow(const Op& op) {
        if (std::ranges::none_of(op.inputs, [&](ValueId id) { return dims_.contains(id); })) return;
        const OpDef& def = op_def(op.kind);
        const FactorRule rule = rule_of(program_, op);
        std::vector<bool> ordered(rule.factors.size());
        const auto each = [&](const auto& visit) {  // of (input, its factor, whether the factor is ordered there)
            for (size_t i = 0; i < op.inputs.size(); ++i)
                for (size_t d = 0; d < rule.inputs[i].size(); ++d) {
                    const std::vector<bool> there = ordered_in(op, rule, i, d);
                    for (size_t f = 0; f < there.size(); ++f)
                        visit(op.inputs[i], static_cast<size_t>(rule.inputs[i][d][f]), there[f]);
                }
        };
        each([&](ValueId, size_t factor, bool there) { ordered[factor] = ordered[factor] || there; });
        for (size_t f = 0; f < ordered.size(); ++f)
            if (ordered[f]) require_same(op, def, rule, static_cast<int>(f));
        each([&](ValueId id, size_t factor, bool there) {
            if (ordered[factor] && !there && !constant(id))
                refuse(op, fmt::format("combines tokens with {}, which is in natural order", describe(program_, id)),
                       "compute it from the positions of the tokens, or for a random value from their places");
        });
        if (std::ranges::count(ordered, true) == 0) return;
        for (size_t o = 0; o < op.outputs.size(); ++o)
            for (const std::vector<int>& factors : rule.outputs[o]) {
                DimParts& parts = dims_[op.outputs[o]].emplace_back();
                for (const int f : factors)
                    parts.push_back({rule.factors[static_cast<size_t>(f)].size, ordered[static_cast<size_t>(f)]});
                const bool groups = parts.size() > 1 && parts[0].ordered;
                if (groups && parts[0].size * parts[1].size == length_ && !parts[1].ordered) {
                    parts[0].size = length_;  // groups with their tokens in one dim again
                    parts.erase(parts.begin() + 1);
                }
            }
    }

    /// Refuses an op that gives other results for tokens in another order along an ordered factor.
    void require_same(const Op& op, const OpDef& def, const FactorRule& rule, int factor) const {
        const bool attention = def.work == Work::attention;
        const Factor::Kind kind = rule.factors[static_cast<size_t>(factor)].kind;
        if (depends_on_index(op, def, rule, factor))
            refuse(op, "depends on the index of a token in its row",
                   attention ? "give it the documents and positions of the tokens"
                             : "give it the positions of the tokens, or their places if it draws random numbers");
        if (kind == Factor::Kind::index || (kind == Factor::Kind::whole && !attention))
            refuse(op, "mixes positions, which only attention can do in another order",
                   "use attention (with fused = true)");
    }

    const Program& program_;
    const TokenOrder& order_;
    int64_t length_ = 0;                             ///< tokens of a row
    std::map<ValueId, std::vector<DimParts>> dims_;  ///< of values of which a dim is ordered
};

}  // namespace

void check_token_order(const Program& program, const Mesh& mesh) {
    const TokenOrder order = token_order(program, mesh);
    if (!order.natural()) FollowedOrder(program, order).run();
}

}  // namespace orrery
