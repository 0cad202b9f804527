// Do the members of every group run the same collectives, and does everybody get to the end?
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>

#include "plan/check.h"
#include "plan/print.h"

namespace orrery {

namespace {

bool is_collective(Do what) {
    return what == Do::all_reduce || what == Do::all_gather || what == Do::reduce_scatter || what == Do::all_to_all ||
           what == Do::broadcast;
}

std::vector<int> classes_of_ranks(const Plan& plan) {
    std::vector<int> class_of(static_cast<size_t>(plan.mesh.ranks()), none);
    for (size_t k = 0; k < plan.classes.size(); ++k)
        for (int64_t rank : plan.classes[k].ranks) {
            if (rank < 0 || static_cast<size_t>(rank) >= class_of.size() || class_of[static_cast<size_t>(rank)] != none)
                throw Error(fmt::format("rank {} is in no mesh {} or in two classes", rank, plan.mesh.text()));
            class_of[static_cast<size_t>(rank)] = static_cast<int>(k);
        }
    const auto missing = std::find(class_of.begin(), class_of.end(), none);
    if (missing != class_of.end()) throw Error(fmt::format("rank {} has no stream", missing - class_of.begin()));
    return class_of;
}

/// The different line-ups of classes that groups of one axis have.
std::set<std::vector<int>> lineups(const Plan& plan, AxisId axis, const std::vector<int>& class_of) {
    std::set<std::vector<int>> all;
    int64_t stride = 1;
    for (size_t a = static_cast<size_t>(axis) + 1; a < plan.mesh.axes().size(); ++a)
        if (!plan.mesh.axes()[a].sequential) stride *= plan.mesh.axes()[a].size;
    const int64_t size = plan.mesh.size(axis);
    if (plan.classes.size() == 1) return {std::vector<int>(static_cast<size_t>(size), 0)};
    for (int64_t rank = 0; rank < plan.mesh.ranks(); ++rank) {
        if (rank / stride % size != 0) continue;
        std::vector<int> members;
        for (int64_t m = 0; m < size; ++m) members.push_back(class_of[static_cast<size_t>(rank + m * stride)]);
        all.insert(std::move(members));
    }
    return all;
}

std::vector<int> collectives_over(const RankClass& c, AxisId axis) {
    std::vector<int> list;
    for (size_t i = 0; i < c.stream.size(); ++i)
        if (is_collective(c.stream[i].what) && c.stream[i].axis == axis) list.push_back(static_cast<int>(i));
    return list;
}

void same_collectives(const Plan& plan, AxisId axis, int a, int b) {
    const RankClass& first = plan.classes[static_cast<size_t>(a)];
    const RankClass& second = plan.classes[static_cast<size_t>(b)];
    const std::vector<int> mine = collectives_over(first, axis), theirs = collectives_over(second, axis);
    for (size_t i = 0; i < std::min(mine.size(), theirs.size()); ++i) {
        const Instruction& x = first.stream[static_cast<size_t>(mine[i])];
        const Instruction& y = second.stream[static_cast<size_t>(theirs[i])];
        const TensorType &tx = x.operands[0].type, &ty = y.operands[0].type;
        if (x.what == y.what && x.reduce == y.reduce && x.peer == y.peer && tx.count() == ty.count() &&
            tx.dtype == ty.dtype)
            continue;
        throw Error(fmt::format("members of axis {} disagree on its collective number {}: {} ({}), but {} ({})",
                                plan.mesh.axis(axis).name, i, describe(plan, first, mine[i]), tx.text(),
                                describe(plan, second, theirs[i]), ty.text()));
    }
    if (mine.size() == theirs.size()) return;
    const bool first_more = mine.size() > theirs.size();
    throw Error(fmt::format(
        "members of axis {} disagree: {} has no partner in class {}", plan.mesh.axis(axis).name,
        first_more ? describe(plan, first, mine[theirs.size()]) : describe(plan, second, theirs[mine.size()]),
        first_more ? b : a));
}

/// One greedy execution of one rank of each class. With fixed peers and in-order channels every other execution ends
/// the same (Kahn networks are confluent), so that one decides.
class Progress {
public:
    Progress(const Plan& plan, const std::map<std::string, TransportContract>& contracts, std::vector<int> class_of)
        : plan_(plan), contracts_(contracts), class_of_(std::move(class_of)), state_(plan.classes.size()) {
        for (size_t k = 0; k < plan.classes.size(); ++k) enqueue(static_cast<int>(k));
    }

    void run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t k = 0; k < state_.size(); ++k)
                for (auto& [key, lane] : state_[k].lanes) moved |= advance(static_cast<int>(k), lane);
        }
        explain();
    }

private:
    /// Instructions that run one after the other. Communication lanes: (axis, peer, direction), as the contract says.
    using LaneKey = std::tuple<AxisId, int, int>;
    struct Class {
        std::map<LaneKey, std::deque<int>> lanes;
        std::vector<char> done, posted;
        std::vector<int> group;  ///< first instruction of a run of sends and receives of one axis
        std::map<AxisId, int> collectives_done;
    };
    /// Messages from one class to another over one axis, in order.
    struct Edge {
        std::deque<int> sends, receives;  ///< posted and not matched
        int buffered = 0;
    };

    const Instruction& at(int k, int index) const {
        return plan_.classes[static_cast<size_t>(k)].stream[static_cast<size_t>(index)];
    }
    Class& of(int k) { return state_[static_cast<size_t>(k)]; }
    TransportContract contract(AxisId axis) const {
        const auto found = contracts_.find(plan_.mesh.axis(axis).name);
        return found == contracts_.end() ? TransportContract{} : found->second;
    }

    void enqueue(int k) {
        const RankClass& c = plan_.classes[static_cast<size_t>(k)];
        Class& state = of(k);
        state.done.assign(c.stream.size(), 0);
        state.posted.assign(c.stream.size(), 0);
        state.group.assign(c.stream.size(), none);
        for (size_t i = 0; i < c.stream.size(); ++i) {
            const Instruction& in = c.stream[i];
            LaneKey key{none, none, none};
            if (in.axis != none) {
                const auto lanes = contract(in.axis).lanes;
                const bool pairwise = in.what == Do::send || in.what == Do::receive;
                const bool by_peer = pairwise && lanes != TransportContract::Lanes::communicator;
                const bool by_direction = pairwise && lanes == TransportContract::Lanes::peer_and_direction;
                key = {in.axis, by_peer ? in.peer : none, by_direction ? static_cast<int>(in.what) : none};
                const bool joins = pairwise && i > 0 && c.stream[i - 1].axis == in.axis &&
                                   (c.stream[i - 1].what == Do::send || c.stream[i - 1].what == Do::receive);
                state.group[i] = joins ? state.group[i - 1] : static_cast<int>(i);
            }
            state.lanes[key].push_back(static_cast<int>(i));
        }
    }

    bool ready(int k, int index) {
        const auto& waits = at(k, index).waits;
        return std::all_of(waits.begin(), waits.end(), [&](int w) { return of(k).done[static_cast<size_t>(w)] != 0; });
    }

    /// Posts what is at the head of a lane (of a group: all of it) and drops what is done.
    bool advance(int k, std::deque<int>& lane) {
        bool moved = false;
        for (size_t place = 0; place < lane.size();) {
            const int index = lane[place];
            if (!of(k).posted[static_cast<size_t>(index)]) {
                if (!ready(k, index)) break;
                of(k).posted[static_cast<size_t>(index)] = 1;
                post(k, index);
                moved = true;
            }
            if (of(k).done[static_cast<size_t>(index)]) {
                lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(place));
                moved = true;
                continue;
            }
            const Instruction& i = at(k, index);
            const bool grouped = i.axis != none && contract(i.axis).send == TransportContract::Send::grouped;
            const bool next_in_group =
                grouped && place + 1 < lane.size() &&
                of(k).group[static_cast<size_t>(lane[place + 1])] == of(k).group[static_cast<size_t>(index)];
            if (!next_in_group) break;
            ++place;
        }
        return moved;
    }

    void post(int k, int index) {
        const Instruction& i = at(k, index);
        if (i.what == Do::kernel || i.what == Do::copy) {
            of(k).done[static_cast<size_t>(index)] = 1;
        } else if (is_collective(i.what)) {
            meet(k, index);
        } else {
            exchange(k, index);
        }
    }

    std::vector<int> members(int k, AxisId axis) const {
        std::vector<int> classes;
        for (int64_t rank : plan_.mesh.group(plan_.classes[static_cast<size_t>(k)].ranks.front(), axis))
            classes.push_back(class_of_[static_cast<size_t>(rank)]);
        return classes;
    }

    /// A collective is done when every member has posted it.
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
        const bool sends = i.what == Do::send;
        Edge& edge = edges_[{i.axis, sends ? k : peer, sends ? peer : k}];
        if (peer == k)
            throw Error(describe(plan_, plan_.classes[static_cast<size_t>(k)], index) +
                        ": is a message to its own rank class");
        const TransportContract c = contract(i.axis);
        const bool buffers = c.send == TransportContract::Send::buffered;
        (sends ? edge.sends : edge.receives).push_back(index);
        while (!edge.sends.empty() && !edge.receives.empty()) match(k, sends ? peer : k, sends ? k : peer, edge);
        // A send that finds a free slot is done; others are done when they are received.
        for (int waiting : edge.sends) {
            char& done = of(sends ? k : peer).done[static_cast<size_t>(waiting)];
            if (!buffers || done || edge.buffered >= c.slots) continue;
            ++edge.buffered;
            done = 1;
        }
    }

    void match(int, int receiver, int sender, Edge& edge) {
        const int sent = edge.sends.front(), received = edge.receives.front();
        const Instruction &s = at(sender, sent), &r = at(receiver, received);
        const auto text = [&](int k, int index) {
            return describe(plan_, plan_.classes[static_cast<size_t>(k)], index);
        };
        if (s.tag != r.tag || s.operands[0].type.bytes() != r.operands[0].type.bytes())
            throw Error(fmt::format("{} (tag {}, {}) meets {} (tag {}, {})", text(sender, sent), s.tag,
                                    s.operands[0].type.text(), text(receiver, received), r.tag,
                                    r.operands[0].type.text()));
        if (of(sender).done[static_cast<size_t>(sent)]) --edge.buffered;
        of(sender).done[static_cast<size_t>(sent)] = 1;
        of(receiver).done[static_cast<size_t>(received)] = 1;
        edge.sends.pop_front();
        edge.receives.pop_front();
    }

    /// Class and instruction.
    using Place = std::pair<int, int>;
    std::string text(const Place& place) const {
        return describe(plan_, plan_.classes[static_cast<size_t>(place.first)], place.second);
    }

    /// What an instruction that does not end waits for; nullopt when that never comes.
    std::optional<Place> waits_for(const Place& place) {
        const auto [k, index] = place;
        const Instruction& i = at(k, index);
        if (!of(k).posted[static_cast<size_t>(index)]) {
            for (int wait : i.waits)
                if (!of(k).done[static_cast<size_t>(wait)]) return Place{k, wait};
            for (const auto& [key, lane] : of(k).lanes)
                if (!lane.empty() && lane.front() != index && std::find(lane.begin(), lane.end(), index) != lane.end())
                    return Place{k, lane.front()};
            return std::nullopt;
        }
        const bool pairwise = i.what == Do::send || i.what == Do::receive;
        for (int member : members(k, i.axis)) {
            if (member == k || (pairwise && member != members(k, i.axis).at(static_cast<size_t>(i.peer)))) continue;
            const auto& stream = plan_.classes[static_cast<size_t>(member)].stream;
            for (size_t j = 0; j < stream.size(); ++j) {
                const bool partner =
                    pairwise ? stream[j].what == (i.what == Do::send ? Do::receive : Do::send) && stream[j].tag == i.tag
                             : is_collective(stream[j].what);
                if (partner && stream[j].axis == i.axis && !of(member).posted[j])
                    return Place{member, static_cast<int>(j)};
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
        std::string cycle;
        for (auto it = std::find(seen.begin(), seen.end(), place); it != seen.end(); ++it)
            cycle += (cycle.empty() ? "\n  " : ", which waits for\n  ") + text(*it);
        return cycle + ", which waits for the first of these";
    }

    void explain() {
        for (size_t k = 0; k < state_.size(); ++k)
            for (const auto& [key, lane] : state_[k].lanes)
                if (!lane.empty() && std::get<0>(key) != none && state_[k].posted[static_cast<size_t>(lane.front())])
                    throw Error(plan_.schedule.origin,
                                "the plan never ends under the transports' send semantics and lanes:" +
                                    chain({static_cast<int>(k), lane.front()}));
        for (const auto& [key, edge] : edges_)
            if (!edge.sends.empty())
                throw Error(plan_.schedule.origin,
                            text({std::get<1>(key), edge.sends.front()}) + ": is sent but never received");
        for (size_t k = 0; k < state_.size(); ++k)
            for (const auto& [key, lane] : state_[k].lanes)
                if (!lane.empty())
                    throw Error(plan_.schedule.origin,
                                text({static_cast<int>(k), lane.front()}) + ": is never reached");
    }

    const Plan& plan_;
    const std::map<std::string, TransportContract>& contracts_;
    std::vector<int> class_of_;
    std::vector<Class> state_;
    std::map<std::tuple<AxisId, int, int>, Edge> edges_;
    std::map<std::pair<AxisId, std::vector<int>>, std::map<int, int>> waiting_;
};

}  // namespace

void check_groups(const Plan& plan) {
    const std::vector<int> class_of = classes_of_ranks(plan);
    for (size_t axis = 0; axis < plan.mesh.axes().size(); ++axis) {
        if (plan.mesh.axes()[axis].sequential) continue;
        std::set<std::pair<int, int>> compared;
        for (const std::vector<int>& members : lineups(plan, static_cast<AxisId>(axis), class_of))
            for (int member : members)
                if (member != members[0] && compared.emplace(members[0], member).second)
                    same_collectives(plan, static_cast<AxisId>(axis), members[0], member);
    }
}

void check_progress(const Plan& plan, const std::map<std::string, TransportContract>& contracts) {
    if (plan.classes.size() == 1) {
        const auto& stream = plan.classes[0].stream;
        const bool pairwise = std::any_of(stream.begin(), stream.end(), [](const Instruction& i) {
            return i.what == Do::send || i.what == Do::receive;
        });
        if (!pairwise) return;  // one stream meets only itself, at the same places
    }
    Progress(plan, contracts, classes_of_ranks(plan)).run();
}

}  // namespace orrery
