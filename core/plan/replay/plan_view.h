#pragma once
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "orrery/plan.h"
#include "plan/network.h"
#include "plan/repeat.h"
#include "plan/replay/replay.h"

namespace orrery {

/// What lies between the messages and meetings of an actor, left out: which of these an instruction waits for, directly
/// or by way of others. An actor's lanes end in order, so that the last of each lane says it all.
class Between {
public:
    Between(int instructions, int lanes);
    /// Before each position, in order. `waits`, `holds`: earlier positions; as in ReplayView::add.
    void enter(const ReplayItem& item, const std::vector<int>& waits, const std::vector<int>& holds);
    /// Items that the one that was entered must wait for before it starts, and before it is issued.
    const std::vector<int>& waits() const { return waits_; }
    const std::vector<int>& holds() const { return holds_; }
    /// It is a message or meeting, added as `item`.
    void entered(int item);

private:
    int* after(int position) { return after_.data() + position * lanes_; }
    void join(int* to, const int* from) const;

    size_t lanes_;
    int position_ = none;
    int lane_ = none;
    std::vector<int> after_;   ///< [position][lane]: the last item that is done when the instruction is
    std::vector<int> issued_;  ///< by lane: what was done before the one at hand was issued
    std::vector<int> told_;    ///< by lane: what holds have told of that
    std::vector<int> last_;    ///< by lane: the last position
    std::vector<int> waits_, holds_;
};

/// A plan as the executor runs it: one thread issues a stream in order. It is held up by a receive, a collective or the
/// end of a group until that is done, unless the transport queues it, and by waits of the host; never by a send. What
/// is issued goes to its lane: the compute lane, or one of an axis as its contract says.
/// One actor a class; of a class whose ranks exchange messages among themselves one a member (`choose_axes`).
class PlanView {
public:
    /// What of a stream becomes an item.
    enum class Detail : uint8_t {
        /// Each instruction. Where a stretch of a stream is repeated all its runs are played, but messages and meetings
        /// alone: each waits for those that it would wait for by way of kernels (`Between`).
        order,
        all,   ///< each instruction, of all runs
        time,  ///< the same, but kernels and copies of a fragment that nothing waits between are one item
    };

    /// `class_of`: by rank, the plan's classes or finer ones: ranks of one number share an actor. `members`: the most
    /// that are played one by one where one would do as well; fewer of long streams. Throws Error where a rank sends to
    /// itself, or ranks of a class have groups of different classes. Items: instructions times actors.
    PlanView(const Plan& plan, const Network& contracts, const std::vector<int>& class_of, int64_t members,
             Detail detail = Detail::order);

    const ReplayView& view() const { return view_; }
    int class_of(int item) const { return actor_of(item).of_class; }
    /// The ranks that an actor stands for, ascending.
    const std::vector<int64_t>& ranks_of(int actor) const { return actors_[actor].ranks; }
    const RankClass& class_of_actor(int actor) const { return class_at(actors_[actor]); }
    /// " at dp=3" where the item's class has other actors; else "".
    std::string place(int item) const;
    /// The instruction that an item stands for, in its run.
    Issued issued(int item) const { return issued_at(class_at(actor_of(item)), view_.at(item).source); }
    const Instruction& instruction(int item) const;
    /// The actors that meet in it, ascending; of any other item its own.
    std::vector<int> actors_in(int item) const;
    const TransportContract& contract(AxisId axis) const { return contracts_[axis]; }
    /// Axis, sending and receiving actor; of members that one actor plays how far a message goes, else 0.
    using Channel = std::tuple<AxisId, int, int, int64_t>;
    const std::map<Channel, int>& channels() const { return channels_; }

private:
    /// Ranks of a class that are at one place of the axes along which members are played.
    struct Actor {
        int of_class = 0;
        std::vector<int64_t> ranks;
        std::vector<std::vector<int>> members;  ///< by axis: actors, by member
        int64_t rank() const { return ranks.front(); }
    };

    void choose_axes(const std::vector<int>& class_of, int64_t members);
    bool varies(AxisId axis, const std::vector<int>& class_of) const;
    void find_actors(const std::vector<int>& class_of);
    void find_members();
    void require_alike(AxisId axis) const;
    int64_t stride(AxisId axis) const { return strides_[axis]; }
    int64_t own(int64_t rank, AxisId axis) const { return rank / stride(axis) % plan_.mesh.size(axis); }
    bool played(AxisId axis) const { return played_[axis] != 0; }
    const Actor& actor_of(int item) const { return actors_[view_.at(item).actor]; }
    const RankClass& class_at(const Actor& actor) const { return plan_.classes[actor.of_class]; }

    void add_actor(const Actor& actor, const std::vector<int>& groups);
    void add_instruction(int position);
    bool join(const Issued& issued, const std::vector<int>& waits);
    int add(const ReplayItem& item, const std::vector<int>& waits);
    int lane_of(const Instruction& i);
    int channel_of(int position);
    int meeting_of(AxisId axis);
    int peer_of(const Instruction& i) const { return i.peer_of(own(actor_->rank(), i.axis), plan_.mesh.size(i.axis)); }
    bool queued(const Instruction& i) const { return i.axis != none && contract(i.axis).queued; }
    bool on_host(const Instruction& i, const Instruction& earlier) const;

    const Plan& plan_;
    std::vector<TransportContract> contracts_;  ///< by axis
    std::vector<int64_t> strides_;              ///< by axis: from one member's rank to the next one's
    std::vector<char> played_;                  ///< by axis: members are played one by one
    std::vector<Actor> actors_;
    std::vector<int> actors_of_ranks_;
    const Detail detail_;
    std::map<Channel, int> channels_;
    std::map<std::pair<AxisId, std::vector<int>>, int> meetings_;
    ReplayView view_;

    // Of the actor that is added.
    const Actor* actor_ = nullptr;
    const RankClass* class_ = nullptr;
    std::vector<int> items_;  ///< by position; `between_`: these themselves
    std::optional<Between> between_;
    std::map<std::tuple<AxisId, int, int>, int> lanes_;  ///< (axis, peer, direction)
    std::map<int, int> group_ids_;                       ///< by position of the first instruction
    const std::vector<int>* groups_ = nullptr;
    std::vector<char> awaited_;  ///< by index of the stream: an instruction waits for it
    int open_ = none;            ///< Detail::time: the item that the next kernel may join
    Fragment open_fragment_;
    int computed_ = none;  ///< the compute lane's last item
    int held_ = none;      ///< what the next instruction's issue waits for
    std::vector<int> holds_;
};

}  // namespace orrery
