// Proves that the members of every group run the same collectives in the same order.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/print.h"
#include "plan/repeat.h"

namespace orrery {

namespace {

std::vector<Issued> collectives_over(const RankClass& c, AxisId axis) {
    return issued_of(c, [&](const Instruction& i) { return is_collective(i.opcode) && i.axis == axis; });
}

/// Whether two instructions communicate the same values. Joined ones must be at equal offsets in the buffer.
bool same_meaning(const Instruction& x, const Instruction& y) {
    if (x.op != y.op || x.fragment.micro != y.fragment.micro || x.operands.size() != y.operands.size()) return false;
    for (size_t o = 3; x.opcode == Opcode::all_reduce && o < x.operands.size(); o += 2) {
        const Operand &a = x.operands[o], &b = y.operands[o];
        if (a.value != b.value || a.offset - x.operands[1].offset != b.offset - y.operands[1].offset) return false;
    }
    return true;
}

void same_collectives(const Plan& plan, AxisId axis, int a, int b) {
    const RankClass& first = plan.classes[a];
    const RankClass& second = plan.classes[b];
    const std::vector<Issued> mine = collectives_over(first, axis), theirs = collectives_over(second, axis);
    for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
        const Instruction x = in_run(first, mine[i]), y = in_run(second, theirs[i]);
        const TensorType &tx = x.operands[0].type, &ty = y.operands[0].type;
        if (x.opcode == y.opcode && x.reduce == y.reduce && x.peer == y.peer && tx.count() == ty.count() &&
            tx.dtype == ty.dtype && same_meaning(x, y))
            continue;
        throw Error(fmt::format(
            "collective mismatch: members of axis {} disagree on collective number {}: {} ({}), but {} ({})",
            plan.mesh.axis(axis).name, i, describe(plan, first, mine[i]), tx.text(), describe(plan, second, theirs[i]),
            ty.text()));
    }
    if (mine.size() == theirs.size()) return;
    const bool first_more = mine.size() > theirs.size();
    throw Error(fmt::format(
        "collective mismatch: members of axis {} disagree: {} has no partner in class {}", plan.mesh.axis(axis).name,
        first_more ? describe(plan, first, mine[theirs.size()]) : describe(plan, second, theirs[mine.size()]),
        first_more ? b : a));
}

}  // namespace

std::set<std::vector<int>> lineups(const Plan& plan, AxisId axis, const std::vector<int>& class_of) {
    std::set<std::vector<int>> all;
    if (plan.classes.size() == 1) return {std::vector<int>(plan.mesh.size(axis), 0)};
    for (int64_t rank = 0; rank < plan.mesh.ranks(); ++rank) {
        if (plan.mesh.member(rank, axis) != 0) continue;
        std::vector<int> members;
        for (const int64_t other : plan.mesh.group(rank, axis)) members.push_back(class_of[other]);
        all.insert(std::move(members));
    }
    return all;
}

std::vector<int> classes_of_ranks(const Plan& plan) {
    std::vector<int> class_of(plan.mesh.ranks(), none);
    for (size_t k = 0; k < plan.classes.size(); ++k)
        for (int64_t rank : plan.classes[k].ranks) {
            if (rank < 0 || rank >= std::ssize(class_of) || class_of[rank] != none)
                throw Error(
                    fmt::format("rank {} is not a rank of mesh {}, or is in two classes", rank, plan.mesh.text()));
            class_of[rank] = k;
        }
    const auto missing = std::find(class_of.begin(), class_of.end(), none);
    if (missing != class_of.end()) throw Error(fmt::format("rank {} has no stream", missing - class_of.begin()));
    return class_of;
}

std::vector<int> groups_of(const Plan& plan, const RankClass& c, const Network& contracts) {
    std::vector<int> group(c.stream.size(), none);
    for (size_t i = 0; i < c.stream.size(); ++i) {
        const Instruction& in = c.stream[i];
        if (!is_message(in.opcode)) continue;
        if (!contracts.of(plan.mesh.axis(in.axis).name).groups_messages()) continue;
        const bool joins = i > 0 && is_message(c.stream[i - 1].opcode) && c.stream[i - 1].axis == in.axis;
        group[i] = joins ? group[i - 1] : static_cast<int>(i);
    }
    return group;
}

void check_collectives(const Plan& plan) {
    const std::vector<int> class_of = classes_of_ranks(plan);
    std::set<AxisId> axes = joined_axes(plan);
    for (size_t axis = 0; axis < plan.mesh.axes().size(); ++axis)
        if (!plan.mesh.axes()[axis].sequential) axes.insert(axis);
    for (const AxisId axis : axes) {
        std::set<std::pair<int, int>> compared;
        for (const std::vector<int>& members : lineups(plan, axis, class_of))
            for (int member : members)
                if (member != members[0] && compared.emplace(members[0], member).second)
                    same_collectives(plan, axis, members[0], member);
    }
}

}  // namespace orrery
