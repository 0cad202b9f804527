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

/// Finds which messages and meetings (collectives) of an actor depend on each other, also through kernels between them.
/// Only the last item of each lane counts, since items of a lane end in order.
class Between {
public:
    Between(int instructions, int lanes);
    /// Adds the next instruction. It starts after those at positions `waits`, and is issued after those at `holds`.
    void enter(const ReplayItem& item, const std::vector<int>& waits, const std::vector<int>& holds);
    /// The items that must be done before the current instruction starts (waits) or is issued (holds).
    const std::vector<int>& waits() const { return waits_; }
    const std::vector<int>& holds() const { return holds_; }
    /// Makes the current instruction, a message or meeting, item number `item`.
    void entered(int item);

private:
    int* after(int position) { return after_.data() + position * lanes_; }
    void join(int* to, const int* from) const;

    size_t lanes_;
    int position_ = none;
    int lane_ = none;
    std::vector<int> after_;   ///< [position][lane]: last item that is done once the instruction at `position` is done
    std::vector<int> issued_;  ///< by lane: last item that is done once the current instruction is issued
    std::vector<int> told_;    ///< by lane: last item in `holds` of an earlier instruction
    std::vector<int> last_;
    std::vector<int> waits_, holds_;
};

/// The input of a replay for a plan, as the executor runs it. One thread issues a stream in order. A receive, a
/// collective or the end of a group blocks it until complete, unless the transport queues them; waits of the host block
/// it, sends never do. Issued instructions go to the compute lane, or to a lane of their axis as its contract says.
/// There is one actor per class, or per member if the ranks of a class exchange messages with each other.
class PlanView {
public:
    /// Which instructions become items of the replay.
    enum class Detail : uint8_t {
        /// Each instruction once. If a part of the stream repeats: only messages and collectives, of all runs; waits
        /// that pass through kernels are resolved.
        order,
        all,   ///< each instruction of every run
        time,  ///< like `all`, but adjacent kernels and copies of a fragment with no wait between them are one item
    };

    /// `class_of`: by rank, its class or a subdivision of it; ranks of equal number share an actor. `members`: max
    /// number of members simulated one by one where one actor could represent all; fewer for long streams. Throws Error
    /// if a rank sends to itself, or if groups of one class differ in their classes.
    PlanView(const Plan& plan, const Network& contracts, const std::vector<int>& class_of, int64_t members,
             Detail detail = Detail::order);

    const ReplayView& view() const { return view_; }
    int class_of(int item) const { return actor_of(item).of_class; }
    const std::vector<int64_t>& ranks_of(int actor) const { return actors_[actor].ranks; }
    const RankClass& class_of_actor(int actor) const { return class_at(actors_[actor]); }
    /// Names an item's actor among others of its class, by coordinates: " at dp=3"; "" if there are no others.
    std::string place(int item) const;
    Issued issued(int item) const { return issued_at(class_at(actor_of(item)), view_.at(item).source); }
    const Instruction& instruction(int item) const;
    /// The actors of a collective in ascending order; for other items, only the item's own actor.
    std::vector<int> actors_in(int item) const;
    const TransportContract& contract(AxisId axis) const { return contracts_[axis]; }
    /// A channel: axis, sending actor, receiving actor; then the distance in ranks if one actor represents all, else 0.
    using Channel = std::tuple<AxisId, int, int, int64_t>;
    const std::map<Channel, int>& channels() const { return channels_; }

private:
    /// An actor: ranks of one class that have equal coordinates on all axes with members simulated one by one.
    struct Actor {
        int of_class = 0;
        std::vector<int64_t> ranks;
        std::vector<std::vector<int>> members;  ///< [axis][member]: index of the member's actor
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
    std::vector<TransportContract> contracts_;
    std::vector<int64_t> strides_;  ///< by axis: difference of rank between adjacent members of the axis
    std::vector<char> played_;      ///< by axis: whether its members are simulated one by one
    std::vector<Actor> actors_;
    std::vector<int> actors_of_ranks_;
    const Detail detail_;
    std::map<Channel, int> channels_;
    std::map<std::pair<AxisId, std::vector<int>>, int> meetings_;
    ReplayView view_;

    // State of the actor that is being added.
    const Actor* actor_ = nullptr;
    const RankClass* class_ = nullptr;
    std::vector<int> items_;  ///< by position in the stream: index of its item; with `between_`, the position itself
    std::optional<Between> between_;
    std::map<std::tuple<AxisId, int, int>, int> lanes_;  ///< by (axis, peer, direction): index of the lane
    std::map<int, int> group_ids_;
    const std::vector<int>* groups_ = nullptr;
    std::vector<char> awaited_;  ///< by index in the stream: whether another instruction waits for it
    int open_ = none;  ///< with Detail::time: the item that the next kernel may join; none: it starts a new one
    Fragment open_fragment_;
    int computed_ = none;  ///< index of the last item of the compute lane
    int held_ = none;      ///< index of the item that must be done before the next one is issued
    std::vector<int> holds_;
};

}  // namespace orrery
