#pragma once
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "orrery/plan.h"
#include "plan/network.h"
#include "plan/replay/replay.h"

namespace orrery {

/// A plan as the executor runs it: one thread issues a stream in order. It is held up by a receive, a collective or the
/// end of a group until that is done, unless the transport queues it, and by waits of the host; never by a send. What
/// is issued goes to its lane: the compute lane, or one of an axis as its contract says.
/// One actor a class; of a class whose ranks exchange messages among themselves one a member (`choose_axes`).
class PlanView {
public:
    /// `class_of`: by rank. `members`: the most that are played one by one where one would do as well; fewer of long
    /// streams. Throws Error where a rank sends to itself, or ranks of a class have groups of different classes. Items:
    /// instructions times actors.
    PlanView(const Plan& plan, const Network& contracts, const std::vector<int>& class_of, int64_t members);

    const ReplayView& view() const { return view_; }
    int class_of(int item) const { return actor_of(item).of_class; }
    /// " at dp=3" where the item's class has other actors; else "".
    std::string place(int item) const;
    /// The instruction that an item stands for.
    int index_of(int item) const { return view_.at(item).source; }
    const Instruction& instruction(int item) const;
    const TransportContract& contract(AxisId axis) const { return contracts_[static_cast<size_t>(axis)]; }
    /// Axis, sending and receiving actor; of members that one actor plays how far a message goes, else 0.
    using Channel = std::tuple<AxisId, int, int, int64_t>;
    const std::map<Channel, int>& channels() const { return channels_; }

private:
    /// Ranks of a class that are at one place of the axes along which members are played.
    struct Actor {
        int of_class = 0;
        int64_t rank = 0;                       ///< the first of them
        std::vector<std::vector<int>> members;  ///< by axis: actors, by member
    };

    void choose_axes(const std::vector<int>& class_of, int64_t members);
    bool varies(AxisId axis, const std::vector<int>& class_of) const;
    void find_actors();
    void find_members();
    void require_alike(AxisId axis) const;
    int64_t stride(AxisId axis) const { return strides_[static_cast<size_t>(axis)]; }
    int64_t own(int64_t rank, AxisId axis) const { return rank / stride(axis) % plan_.mesh.size(axis); }
    bool played(AxisId axis) const { return played_[static_cast<size_t>(axis)] != 0; }
    const Actor& actor_of(int item) const { return actors_[static_cast<size_t>(view_.at(item).actor)]; }
    const RankClass& class_at(const Actor& actor) const { return plan_.classes[static_cast<size_t>(actor.of_class)]; }

    void add_actor(const Actor& actor, const std::vector<int>& groups);
    void add_instruction(int index);
    int lane_of(const Instruction& i);
    int channel_of(int index);
    int meeting_of(AxisId axis);
    int peer_of(const Instruction& i) const { return i.peer_of(own(actor_->rank, i.axis), plan_.mesh.size(i.axis)); }
    bool queued(const Instruction& i) const { return i.axis != none && contract(i.axis).queued; }
    bool on_host(const Instruction& i, const Instruction& earlier) const;

    const Plan& plan_;
    std::vector<TransportContract> contracts_;  ///< by axis
    std::vector<int64_t> strides_;              ///< by axis: from one member's rank to the next one's
    std::vector<char> played_;                  ///< by axis: members are played one by one
    std::vector<Actor> actors_;
    std::vector<int> actors_of_ranks_;
    std::map<Channel, int> channels_;
    std::map<std::pair<AxisId, std::vector<int>>, int> meetings_;
    ReplayView view_;

    // Of the actor that is added.
    const Actor* actor_ = nullptr;
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
