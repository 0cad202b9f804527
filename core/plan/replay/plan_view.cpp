#include "plan/replay/plan_view.h"

#include <algorithm>
#include <set>

#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/print.h"

namespace orrery {

namespace {

constexpr int compute_lane = 0;

}  // namespace

PlanView::PlanView(const Plan& plan, const Network& contracts, const std::vector<int>& class_of)
    : plan_(plan), members_(plan.classes.size()) {
    for (const Axis& axis : plan.mesh.axes()) contracts_.push_back(contracts.of(axis.name));
    for (size_t k = 0; k < plan.classes.size(); ++k)
        for (size_t axis = 0; axis < plan.mesh.axes().size(); ++axis) {
            auto& classes = members_[k].emplace_back();
            if (plan.mesh.axes()[axis].sequential) continue;
            for (const int64_t rank : plan.mesh.group(plan.classes[k].ranks.front(), static_cast<AxisId>(axis)))
                classes.push_back(class_of[static_cast<size_t>(rank)]);
        }
    for (size_t k = 0; k < plan.classes.size(); ++k)
        add_class(static_cast<int>(k), groups_of(plan, plan.classes[k], contracts));
}

const Instruction& PlanView::instruction(int item) const {
    return plan_.classes[static_cast<size_t>(class_of(item))].stream[static_cast<size_t>(index_of(item))];
}

const std::vector<int>& PlanView::members(int k, AxisId axis) const {
    return members_[static_cast<size_t>(k)][static_cast<size_t>(axis)];
}

void PlanView::add_class(int k, const std::vector<int>& groups) {
    view_.add_actor();
    class_ = &plan_.classes[static_cast<size_t>(k)];
    groups_ = &groups;
    items_.clear();
    lanes_.clear();
    group_ids_.clear();
    computed_ = held_ = none;
    for (int index = 0; index < static_cast<int>(class_->stream.size()); ++index) add_instruction(index);
}

/// The host itself waits for what a transport that does not queue has begun, and before it calls such a one.
bool PlanView::on_host(const Instruction& i, const Instruction& earlier) const {
    return (i.axis != none && !queued(i)) || (earlier.axis != none && !queued(earlier));
}

int PlanView::lane_of(const Instruction& i) {
    if (i.axis == none) return compute_lane;
    const auto lanes = contract(i.axis).lanes;
    const bool by_peer = is_message(i.opcode) && lanes != TransportContract::Lanes::communicator;
    const bool by_direction = is_message(i.opcode) && lanes == TransportContract::Lanes::peer_and_direction;
    const auto fresh = static_cast<int>(lanes_.size()) + 1;
    return lanes_
        .try_emplace({i.axis, by_peer ? i.peer : none, by_direction ? static_cast<int>(i.opcode) : none}, fresh)
        .first->second;
}

int PlanView::channel_of(int k, int index) {
    const Instruction& i = class_->stream[static_cast<size_t>(index)];
    const int peer = members(k, i.axis).at(static_cast<size_t>(i.peer));
    if (peer == k) throw Error(describe(plan_, *class_, index) + ": is a message to its own rank class");
    const bool sends = i.opcode == Opcode::send;
    const int from = sends ? k : peer, to = sends ? peer : k;
    const auto [place, fresh] = channels_.try_emplace({i.axis, from, to}, static_cast<int>(view_.channels.size()));
    if (fresh) {
        const TransportContract& c = contract(i.axis);
        view_.add_channel(c.send == TransportContract::Send::buffered ? c.slots : 0);
    }
    return place->second;
}

/// none: the class meets only itself.
int PlanView::meeting_of(int k, AxisId axis) {
    std::vector<int> group = members(k, axis);
    std::sort(group.begin(), group.end());
    group.erase(std::unique(group.begin(), group.end()), group.end());
    if (group.size() == 1) return none;
    const auto size = static_cast<int>(group.size());
    const auto [place, fresh] = meetings_.try_emplace({axis, std::move(group)}, none);
    if (fresh) place->second = view_.add_meeting(size);
    return place->second;
}

void PlanView::add_instruction(int index) {
    const Instruction& i = class_->stream[static_cast<size_t>(index)];
    const int k = view_.actors() - 1;
    const bool calls = i.axis != none && !queued(i);
    bool after_compute = false;
    std::vector<int> waits;
    for (const int wait : i.waits) {
        const Instruction& earlier = class_->stream[static_cast<size_t>(wait)];
        waits.push_back(items_[static_cast<size_t>(wait)]);
        if (on_host(i, earlier)) holds_.push_back(waits.back());
        after_compute |= earlier.axis == none;
    }
    if (calls && after_compute && computed_ != none) holds_.push_back(computed_);

    ReplayItem item{.lane = lane_of(i), .held = held_, .source = index};
    const int first = (*groups_)[static_cast<size_t>(index)];
    if (is_message(i.opcode)) {
        item.kind = i.opcode == Opcode::send ? ReplayItem::Kind::send : ReplayItem::Kind::receive;
        item.channel = channel_of(k, index);
        item.tag = i.tag;
    } else if (i.axis != none) {
        item.channel = meeting_of(k, i.axis);
        if (item.channel != none) item.kind = ReplayItem::Kind::meet;
    }
    if (first != none) {
        const auto [place, fresh] = group_ids_.try_emplace(first, none);
        if (fresh) place->second = view_.add_group();
        item.group = place->second;
    }
    const int added = view_.add(item, waits, holds_);
    items_.push_back(added);
    holds_.clear();
    held_ = none;
    if (i.axis == none) computed_ = added;
    if (!calls) return;
    if (first == none) {
        if (i.opcode != Opcode::send) held_ = added;
    } else if (index + 1 == static_cast<int>(groups_->size()) || (*groups_)[static_cast<size_t>(index) + 1] != first) {
        for (int member = first; member <= index; ++member)
            if (class_->stream[static_cast<size_t>(member)].opcode == Opcode::receive)
                held_ = items_[static_cast<size_t>(member)];
    }
}

}  // namespace orrery
