#include "sim/questions.h"

#include <algorithm>
#include <utility>

#include "plan/access.h"

namespace orrery {
namespace {

/// Seconds that a demand takes without other work.
double alone_s(const Demand& demand, const Prices& prices) {
    double loads_s = demand.least_s;
    for (const Demand::Load& load : demand.loads)
        loads_s = std::max(loads_s, load.amount / prices.capacity(load.resource));
    return demand.fixed_s + loads_s;
}

}  // namespace

Demand Question::answered_by(Prices& prices) const {
    if (mapped) {
        // The members' messages are a ring. Its slowest link counts: members may be on several kinds of node.
        constexpr double rounding = 1e-9;
        Demand demand = prices.message(axis, bytes, rank, to, alike);
        for (size_t m = 0; m < group.size(); ++m) {
            Demand link = prices.message(axis, bytes, group[m], group[(m + 1) % group.size()], alike);
            if (alone_s(link, prices) > alone_s(demand, prices) * (1 + rounding)) demand = std::move(link);
        }
        demand.how = "mapped buffers";
        return demand;
    }
    switch (kind) {
        case Kind::kernel: return prices.kernel(*spec, rank);
        case Kind::copy: return prices.copy(bytes, rank);
        case Kind::collective: return prices.collective(opcode, axis, bytes, group, alike);
        case Kind::message: return prices.message(axis, bytes, rank, to, alike);
    }
    return {};
}

Questions::Questions(const Plan& plan, const PlanView& view, const Mapped& mapped, const std::vector<int>& kinds)
    : plan_(plan), view_(view), mapped_(mapped) {
    std::map<std::pair<const RankClass*, int>, size_t> known;
    for (int actor = 0; actor < view.view().actors(); ++actor) {
        const RankClass& c = view.class_of_actor(actor);
        const int kind = kinds.empty() ? 0 : kinds[static_cast<size_t>(view.ranks_of(actor).front())];
        const auto [place, fresh] = known.try_emplace({&c, kind}, kernels_.size());
        if (fresh) kernels_.emplace_back(c.kernels.size(), none);
        rows_.push_back(place->second);
    }
}

int Questions::add(Question question) {
    all_.push_back(std::move(question));
    return size() - 1;
}

int Questions::of_work(int actor, const Instruction& i) {
    const int64_t rank = view_.ranks_of(actor).front();
    if (i.opcode == Opcode::copy) {
        const int64_t bytes = i.operands[0].type.bytes();
        const auto [place, fresh] = copies_.try_emplace({actor, bytes}, none);
        if (fresh) {
            Question one;
            one.kind = Question::Kind::copy, one.opcode = i.opcode, one.bytes = bytes, one.rank = rank;
            place->second = add(std::move(one));
        }
        return place->second;
    }
    int& known = kernels_[rows_[static_cast<size_t>(actor)]][static_cast<size_t>(i.kernel)];
    if (known == none) {
        Question one;
        one.spec = &view_.class_of_actor(actor).kernels[static_cast<size_t>(i.kernel)], one.rank = rank;
        known = add(std::move(one));
    }
    return known;
}

int Questions::of_transfer(int item) {
    const Instruction& i = view_.instruction(item);
    int64_t bytes = 0;
    for (size_t o = 0; o < std::min<size_t>(i.operands.size(), is_message(i.opcode) ? 1 : 2); ++o)
        bytes = std::max(bytes, i.operands[o].type.bytes());
    const std::vector<int> actors = view_.actors_in(item);
    const bool mapped = !is_message(i.opcode) && is_mapped(item);
    const auto [place, fresh] = transfers_.try_emplace({i.axis, i.opcode, bytes, i.peer, mapped, actors}, none);
    if (fresh) place->second = add(transfer(item, bytes, actors, mapped));
    return place->second;
}

bool Questions::is_mapped(int item) const {
    const auto of_class = static_cast<size_t>(view_.class_of(item));
    if (of_class >= mapped_.size() || mapped_[of_class].empty()) return false;
    return mapped_[of_class][static_cast<size_t>(view_.issued(item).index)] != 0;
}

Question Questions::transfer(int item, int64_t bytes, const std::vector<int>& actors, bool mapped) const {
    const Instruction& i = view_.instruction(item);
    Question one;
    one.opcode = i.opcode, one.axis = i.axis, one.bytes = bytes;
    for (const int actor : actors)
        one.alike.insert(one.alike.end(), view_.ranks_of(actor).begin(), view_.ranks_of(actor).end());
    std::sort(one.alike.begin(), one.alike.end());
    one.rank = view_.ranks_of(view_.view().at(item).actor).front();
    one.group = plan_.mesh.group(one.rank, i.axis);
    const auto size = static_cast<int64_t>(one.group.size());
    const int64_t own = std::find(one.group.begin(), one.group.end(), one.rank) - one.group.begin();
    one.kind = is_message(i.opcode) ? Question::Kind::message : Question::Kind::collective;
    if (is_message(i.opcode)) one.to = one.group[static_cast<size_t>(i.peer_of(own, size))];
    if (mapped && size > 1) {
        one.kind = Question::Kind::message, one.mapped = true;
        one.to = one.group[static_cast<size_t>((own + 1) % size)];
        one.bytes = bytes * (size - 1) / size * (i.opcode == Opcode::all_reduce ? 2 : 1);
    }
    return one;
}

}  // namespace orrery
