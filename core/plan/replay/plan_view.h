#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "orrery/plan.h"
#include "plan/network.h"
#include "plan/replay/replay.h"

namespace orrery {

/// A plan as the executor runs it, one actor a class: one thread issues a class' stream in order. It is held up by a
/// receive, a collective or the end of a group until that is done, unless the transport queues it, and by waits of the
/// host; never by a send. What is issued goes to its lane: the compute lane, or one of an axis as its contract says.
class PlanView {
public:
    /// `class_of`: by rank. Throws Error where a class sends to itself.
    PlanView(const Plan& plan, const Network& contracts, const std::vector<int>& class_of);

    const ReplayView& view() const { return view_; }
    int class_of(int item) const { return view_.at(item).actor; }
    /// The instruction that an item stands for.
    int index_of(int item) const { return view_.at(item).source; }
    const Instruction& instruction(int item) const;
    const TransportContract& contract(AxisId axis) const { return contracts_[static_cast<size_t>(axis)]; }
    /// By axis, sending and receiving class.
    const std::map<std::tuple<AxisId, int, int>, int>& channels() const { return channels_; }

private:
    void add_class(int k, const std::vector<int>& groups);
    void add_instruction(int index);
    int lane_of(const Instruction& i);
    int channel_of(int k, int index);
    int meeting_of(int k, AxisId axis);
    const std::vector<int>& members(int k, AxisId axis) const;
    bool queued(const Instruction& i) const { return i.axis != none && contract(i.axis).queued; }
    bool on_host(const Instruction& i, const Instruction& earlier) const;

    const Plan& plan_;
    std::vector<TransportContract> contracts_;            ///< by axis
    std::vector<std::vector<std::vector<int>>> members_;  ///< by class and axis: classes, by member
    std::map<std::tuple<AxisId, int, int>, int> channels_;
    std::map<std::pair<AxisId, std::vector<int>>, int> meetings_;
    ReplayView view_;

    // Of the class that is added.
    const RankClass* class_ = nullptr;
    std::vector<int> items_;                             ///< by instruction
    std::map<std::tuple<AxisId, int, int>, int> lanes_;  ///< (axis, peer, direction)
    std::map<int, int> group_ids_;                       ///< by first instruction
    const std::vector<int>* groups_ = nullptr;
    int computed_ = none;  ///< the compute lane's last item
    int held_ = none;      ///< what the next instruction's issue waits for
    std::vector<int> holds_;
};

}  // namespace orrery
