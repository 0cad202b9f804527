// The proof as it was before the engine of time (plan/replay): the oracle that the proof is compared with. Since then a
// queued message goes behind what it waits for, no longer behind all that was computed before it.
#include "deadlock_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "plan/access.h"
#include "plan/check/check.h"
#include "plan/print.h"

namespace orrery::oracle {

namespace {

/// One greedy execution of one rank of each class, as the executor would run it. One thread issues a class' stream in
/// order. It is held up by a receive, a collective or the end of a group until that is done, unless the transport
/// queues it, and by waits of the host; never by a send. What is issued goes to its lane and starts when the lane is
/// free and what it waits for is done. With fixed peers and in-order channels every other execution ends the same
/// (Kahn networks are confluent), so that one decides.
class Progress {
public:
    Progress(const Plan& plan, const Network& contracts, std::vector<int> class_of)
        : plan_(plan), class_of_(std::move(class_of)), state_(plan.classes.size()) {
        for (AxisId axis = 0; axis < plan.mesh.ids(); ++axis)
            contracts_.push_back(contracts.of(plan.mesh.axis(axis).name));
        for (size_t k = 0; k < plan.classes.size(); ++k) prepare(static_cast<int>(k), contracts);
    }

    void run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t k = 0; k < state_.size(); ++k)
                while (issue(static_cast<int>(k)) || advance(static_cast<int>(k))) moved = true;
        }
        explain();
    }

private:
    /// Instructions that run one after the other. Communication lanes: (axis, peer, direction), as the contract says.
    using LaneKey = std::tuple<AxisId, int, int>;
    static constexpr LaneKey compute_lane{none, none, none}, all_queued{none, none, 0};
    struct Class {
        int next = 0;                              ///< the next instruction that the host issues
        int held = none;                           ///< what has to be done before
        std::map<LaneKey, std::deque<int>> lanes;  ///< issued, not done
        std::vector<char> done, started, met;
        std::vector<int> group;                 ///< first instruction of its group, under grouped contracts; else none
        std::vector<int> group_end;             ///< by first instruction: one past the last
        std::vector<std::vector<int>> members;  ///< by axis: classes, by member
    };
    /// Messages from one class to another over one axis, in order.
    struct Edge {
        std::deque<int> sends, receives;  ///< started and not met
        int buffered = 0;
    };

    const Instruction& at(int k, int index) const {
        return plan_.classes[static_cast<size_t>(k)].stream[static_cast<size_t>(index)];
    }
    int end(int k) const { return static_cast<int>(plan_.classes[static_cast<size_t>(k)].stream.size()); }
    Class& of(int k) { return state_[static_cast<size_t>(k)]; }
    bool done(int k, int index) { return of(k).done[static_cast<size_t>(index)] != 0; }
    bool started(int k, int index) { return of(k).started[static_cast<size_t>(index)] != 0; }
    int group(int k, int index) { return of(k).group[static_cast<size_t>(index)]; }
    int group_end(int k, int index) { return of(k).group_end[static_cast<size_t>(group(k, index))]; }
    const TransportContract& contract(AxisId axis) const { return contracts_[static_cast<size_t>(axis)]; }
    const std::vector<int>& members(int k, AxisId axis) { return of(k).members[static_cast<size_t>(axis)]; }
    bool queued(const Instruction& i) const { return i.axis != none && contract(i.axis).queued; }

    void prepare(int k, const Network& contracts) {
        const RankClass& c = plan_.classes[static_cast<size_t>(k)];
        Class& state = of(k);
        state.done.assign(c.stream.size(), 0);
        state.started = state.met = state.done;
        state.group = groups_of(plan_, c, contracts);
        state.group_end.assign(c.stream.size(), none);
        for (int i = 0; i < end(k); ++i)
            if (group(k, i) != none) state.group_end[static_cast<size_t>(group(k, i))] = i + 1;
        for (AxisId axis = 0; axis < plan_.mesh.ids(); ++axis) {
            auto& classes = state.members.emplace_back();
            if (plan_.mesh.axis(axis).sequential) continue;
            for (int64_t rank : plan_.mesh.group(c.ranks.front(), axis))
                classes.push_back(class_of_[static_cast<size_t>(rank)]);
        }
    }

    LaneKey lane_of(const Instruction& i) const {
        if (i.axis == none) return compute_lane;
        const auto lanes = contract(i.axis).lanes;
        if (queued(i) && lanes == TransportContract::Lanes::communicator) return all_queued;
        const bool by_peer = is_message(i.opcode) && lanes != TransportContract::Lanes::communicator;
        const bool by_direction = is_message(i.opcode) && lanes == TransportContract::Lanes::peer_and_direction;
        return {i.axis, by_peer ? i.peer : none, by_direction ? static_cast<int>(i.opcode) : none};
    }

    /// The host itself waits for what a transport that does not queue has begun, and before it calls such a one.
    bool on_host(const Instruction& i, const Instruction& earlier) const {
        return (i.axis != none && !queued(i)) || (earlier.axis != none && !queued(earlier));
    }

    /// The wait that holds up the host at its next instruction; none otherwise.
    int host_wait(int k) {
        const Instruction& i = at(k, of(k).next);
        bool computed = false;
        for (int wait : i.waits) {
            if (!done(k, wait) && on_host(i, at(k, wait))) return wait;
            computed |= at(k, wait).axis == none;
        }
        const auto& compute = of(k).lanes[compute_lane];
        return i.axis != none && !queued(i) && computed && !compute.empty() ? compute.front() : none;
    }

    bool issue(int k) {
        Class& state = of(k);
        if (state.next == end(k) || (state.held != none && !done(k, state.held)) || host_wait(k) != none) return false;
        const int index = state.next++;
        const Instruction& i = at(k, index);
        state.lanes[lane_of(i)].push_back(index);
        state.held = none;
        if (i.axis == none || queued(i)) return true;
        if (group(k, index) == none) {
            if (i.opcode != Opcode::send) state.held = index;
        } else if (state.next == group_end(k, index)) {
            for (int member = group(k, index); member < state.next; ++member)
                if (at(k, member).opcode == Opcode::receive) state.held = member;
        }
        return true;
    }

    /// Starts what can start and takes what is done from the lanes.
    bool advance(int k) {
        bool moved = false;
        for (auto& [key, lane] : of(k).lanes) {
            while (!lane.empty()) {
                const int first = lane.front();
                moved |= start_first(k, lane);
                if (!done(k, first)) break;
                lane.pop_front();
                moved = true;
            }
        }
        return moved;
    }

    /// Starts a lane's first instruction, of a group all that stand there, where they are ready.
    bool start_first(int k, const std::deque<int>& lane) {
        bool moved = false;
        const int own = group(k, lane.front());
        for (size_t place = 0; place < lane.size(); ++place) {
            const int index = lane[place];
            if (place > 0 && (own == none || group(k, index) != own)) break;
            if (started(k, index) || !ready(k, index)) continue;
            of(k).started[static_cast<size_t>(index)] = 1;
            start(k, index);
            moved = true;
        }
        return moved;
    }

    /// A group starts as one, when all that its messages wait for is done.
    bool ready(int k, int index) {
        if (group(k, index) == none) return waited(k, index);
        if (of(k).next < group_end(k, index)) return false;
        for (int member = group(k, index); member < group_end(k, index); ++member)
            if (!started(k, member) && !waited(k, member)) return false;
        return true;
    }

    bool waited(int k, int index) {
        const auto& waits = at(k, index).waits;
        return std::all_of(waits.begin(), waits.end(), [&](int wait) { return done(k, wait); });
    }

    void start(int k, int index) {
        const Instruction& i = at(k, index);
        if (i.axis == none) {
            of(k).done[static_cast<size_t>(index)] = 1;
        } else if (is_message(i.opcode)) {
            exchange(k, index);
        } else {
            meet(k, index);
        }
    }

    /// A collective is done when every member has started it.
    void meet(int k, int index) {
        const AxisId axis = at(k, index).axis;
        std::vector<int> group = members(k, axis);
        std::sort(group.begin(), group.end());
        group.erase(std::unique(group.begin(), group.end()), group.end());
        if (group.size() == 1) {
            of(k).done[static_cast<size_t>(index)] = 1;
            return;
        }
        auto& waiting = waiting_[{axis, group}];
        waiting[k] = index;
        if (waiting.size() < group.size()) return;
        for (const auto& [member, theirs] : waiting) of(member).done[static_cast<size_t>(theirs)] = 1;
        waiting.clear();
    }

    void exchange(int k, int index) {
        const Instruction& i = at(k, index);
        const int peer = members(k, i.axis).at(static_cast<size_t>(i.peer));
        const bool sends = i.opcode == Opcode::send;
        Edge& edge = edges_[{i.axis, sends ? k : peer, sends ? peer : k}];
        if (peer == k)
            throw Error(describe(plan_, plan_.classes[static_cast<size_t>(k)], index) +
                        ": is a message to its own rank class");
        const int sender = sends ? k : peer, receiver = sends ? peer : k;
        (sends ? edge.sends : edge.receives).push_back(index);
        while (!edge.sends.empty() && !edge.receives.empty()) match(receiver, sender, edge);
        // A send that finds a free slot is done; others are done when they are received.
        const bool unmet = sends && !edge.sends.empty() && edge.sends.back() == index;
        if (!unmet || edge.buffered >= contract(i.axis).sends_done_unmet()) return;
        ++edge.buffered;
        of(sender).done[static_cast<size_t>(index)] = 1;
    }

    void match(int receiver, int sender, Edge& edge) {
        const int sent = edge.sends.front(), received = edge.receives.front();
        const Instruction &s = at(sender, sent), &r = at(receiver, received);
        if (s.tag != r.tag || s.operands[0].type.bytes() != r.operands[0].type.bytes())
            throw Error(fmt::format("send and receive do not match: {} (tag {}, {}) and {} (tag {}, {})",
                                    text({sender, sent}), s.tag, s.operands[0].type.text(), text({receiver, received}),
                                    r.tag, r.operands[0].type.text()));
        if (done(sender, sent)) --edge.buffered;
        settle(sender, sent);
        settle(receiver, received);
        edge.sends.pop_front();
        edge.receives.pop_front();
        // Unlike it was: a slot that is free again is taken by the send that has waited for one.
        const int slots = contract(s.axis).sends_done_unmet();
        for (const int waiting : edge.sends) {
            if (done(sender, waiting)) continue;
            if (edge.buffered >= slots) break;
            ++edge.buffered;
            of(sender).done[static_cast<size_t>(waiting)] = 1;
        }
    }

    /// A message has met its partner. Of a group nothing is done before all of it is.
    void settle(int k, int index) {
        Class& state = of(k);
        state.met[static_cast<size_t>(index)] = 1;
        if (group(k, index) == none) {
            state.done[static_cast<size_t>(index)] = 1;
            return;
        }
        const auto first = state.met.begin() + group(k, index), last = state.met.begin() + group_end(k, index);
        if (std::all_of(first, last, [](char met) { return met != 0; }))
            std::fill(state.done.begin() + group(k, index), state.done.begin() + group_end(k, index), 1);
    }

    /// Class and instruction.
    using Place = std::pair<int, int>;
    std::string text(const Place& place) const {
        return describe(plan_, plan_.classes[static_cast<size_t>(place.first)], place.second);
    }

    /// What an instruction that does not end waits for; nullopt when that never comes.
    std::optional<Place> waits_for(const Place& place) {
        const auto [k, index] = place;
        Class& state = of(k);
        if (index >= state.next) {
            if (state.held != none && !done(k, state.held)) return Place{k, state.held};
            return Place{k, index == state.next ? host_wait(k) : state.next};
        }
        const Instruction& i = at(k, index);
        if (!started(k, index)) {
            for (int wait : i.waits)
                if (!done(k, wait)) return Place{k, wait};
            if (group(k, index) != none && state.next < group_end(k, index)) return Place{k, state.next};
            for (int other = group(k, index); other != none && other < group_end(k, index); ++other)
                if (other != index && !started(k, other) && !waited(k, other)) return Place{k, other};
            const auto& lane = state.lanes[lane_of(i)];
            if (!lane.empty() && lane.front() != index) return Place{k, lane.front()};
            return std::nullopt;
        }
        if (state.met[static_cast<size_t>(index)])
            for (int other = group(k, index); other < group_end(k, index); ++other)
                if (!state.met[static_cast<size_t>(other)]) return Place{k, other};
        return partner(place);
    }

    /// The instruction of another class that would meet this one; nullopt when there is none.
    std::optional<Place> partner(const Place& place) {
        const auto [k, index] = place;
        const Instruction& i = at(k, index);
        const bool message = is_message(i.opcode);
        const auto& classes = members(k, i.axis);
        for (int member : classes) {
            if (member == k || (message && member != classes.at(static_cast<size_t>(i.peer)))) continue;
            for (int j = 0; j < end(member); ++j) {
                const Instruction& other = at(member, j);
                const bool fits = message ? is_message(other.opcode) && other.opcode != i.opcode && other.tag == i.tag
                                          : is_collective(other.opcode);
                if (fits && other.axis == i.axis && !started(member, j)) return Place{member, j};
            }
        }
        return std::nullopt;
    }

    /// The chain of waits from one that is stuck: its cycle, or the partner that is missing.
    std::string chain(Place place) {
        std::vector<Place> seen;
        while (std::find(seen.begin(), seen.end(), place) == seen.end()) {
            seen.push_back(place);
            const auto next = waits_for(place);
            if (!next) return "\n  " + text(place) + "\n  waits for a partner that never comes";
            place = *next;
        }
        if (seen.back() == place && seen.size() == 1) return "\n  " + text(place) + "\n  waits for itself";
        std::string cycle;
        for (auto it = std::find(seen.begin(), seen.end(), place); it != seen.end(); ++it)
            cycle += (cycle.empty() ? "\n  " : ", which waits for\n  ") + text(*it);
        return cycle + ", which waits for the first of these";
    }

    /// "pp (rendezvous sends, a lane per peer ...)", of each axis over which the plan sends.
    std::string relied_on() const {
        std::set<AxisId> axes;
        for (const auto& [key, edge] : edges_) axes.insert(std::get<0>(key));
        std::string all;
        for (AxisId axis : axes)
            all += fmt::format("{}axis {}: {}", all.empty() ? "" : "; ", plan_.mesh.axis(axis).name,
                               contract(axis).text());
        return all.empty() ? "" : "\n  relied on: " + all;
    }

    void explain() {
        std::optional<Place> stuck;
        for (size_t k = 0; k < state_.size() && !stuck; ++k)
            for (int i = 0; i < end(static_cast<int>(k)) && !stuck; ++i)
                if (!state_[k].done[static_cast<size_t>(i)] && at(static_cast<int>(k), i).axis != none)
                    stuck = Place{static_cast<int>(k), i};
        if (stuck)
            throw Error(plan_.schedule.origin,
                        "deadlock: the plan never ends, ranks wait for each other:" + chain(*stuck) + relied_on() +
                            "\n  change the schedule, or choose another transport for the axis in [transport.axis]");
        for (const auto& [key, edge] : edges_)
            if (!edge.sends.empty())
                throw Error(plan_.schedule.origin,
                            text({std::get<1>(key), edge.sends.front()}) + ": is sent but never received");
        for (size_t k = 0; k < state_.size(); ++k)
            if (state_[k].next < end(static_cast<int>(k)))
                throw Error(plan_.schedule.origin, text({static_cast<int>(k), state_[k].next}) + ": is never reached");
    }

    const Plan& plan_;
    std::vector<TransportContract> contracts_;  ///< by axis
    std::vector<int> class_of_;
    std::vector<Class> state_;
    std::map<std::tuple<AxisId, int, int>, Edge> edges_;
    std::map<std::pair<AxisId, std::vector<int>>, std::map<int, int>> waiting_;
};

}  // namespace

void check_deadlock(const Plan& plan, const Network& contracts) {
    if (plan.classes.size() == 1) {
        const auto& stream = plan.classes[0].stream;
        if (std::none_of(stream.begin(), stream.end(), [](const Instruction& i) { return is_message(i.opcode); }))
            return;  // one stream meets only itself, at the same places
    }
    Progress(plan, contracts, classes_of_ranks(plan)).run();
}

}  // namespace orrery::oracle
