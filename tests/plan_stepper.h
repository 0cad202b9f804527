// A second opinion on whether the streams of a plan end: every rank as `communicator.h` describes it, one small step at
// a time, in an order drawn by chance. Knows nothing of core/plan/check*.
#pragma once
#include <deque>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "orrery/communicator.h"
#include "plan/access.h"

namespace orrery::test {

/// Of plans over one axis, whose ranks are its members; groups lie in one lane.
class Stepper {
public:
    Stepper(const Plan& plan, const TransportContract& contract, uint64_t seed)
        : plan_(plan), contract_(contract), random_(seed), ranks_(static_cast<size_t>(plan.mesh.ranks())) {
        for (int r = 0; r < count(); ++r) prepare(r);
    }

    /// "" when every rank gets to the end; else who is stuck, which message meets a wrong one, or which two
    /// instructions are under way at once on the same bytes.
    std::string run() {
        while (wrong_.empty()) {
            const std::vector<Action> can = enabled();
            if (can.empty()) break;
            take(can[random_() % can.size()]);
        }
        for (int r = 0; r < count() && wrong_.empty(); ++r)
            for (int i = 0; i < end(r) && wrong_.empty(); ++i)
                if (!done(r, i)) wrong_ = "stuck: " + name(r, i);
        for (const auto& [ends, edge] : edges_)
            if (wrong_.empty() && !edge.sends.empty())
                wrong_ = "never received: " + name(ends.first, edge.sends.front());
        return wrong_;
    }

private:
    enum class State : uint8_t { waiting, issued, begun, met, done };
    using Lane = std::tuple<bool, int, Opcode>;  ///< compute or not, peer, direction
    struct Rank {
        std::vector<State> states;
        std::vector<int> first, last;           ///< by instruction: of its group
        std::map<Lane, std::deque<int>> lanes;  ///< issued, not done
        int next = 0;                           ///< the instruction that the thread issues next
    };
    struct Edge {
        std::deque<int> sends, receives;  ///< begun, not met
    };
    /// Issue the next instruction; begin the first group of a lane; end one; let a send meet a receive, or all members.
    enum class What : uint8_t { issue, begin, end, meet, gather };
    struct Action {
        What what;
        int rank = none, item = none, from = none;
    };

    int count() const { return static_cast<int>(ranks_.size()); }
    int end(int r) const { return static_cast<int>(of(r).states.size()); }
    const Rank& of(int r) const { return ranks_[static_cast<size_t>(r)]; }
    Rank& of(int r) { return ranks_[static_cast<size_t>(r)]; }
    const Instruction& at(int r, int i) const { return plan_.class_of(r).stream[static_cast<size_t>(i)]; }
    int peer(int r, int i) const { return at(r, i).peer_of(r, count()); }
    State state(int r, int i) const { return of(r).states[static_cast<size_t>(i)]; }
    State& state(int r, int i) { return of(r).states[static_cast<size_t>(i)]; }
    bool done(int r, int i) const { return state(r, i) == State::done; }
    int first(int r, int i) const { return of(r).first[static_cast<size_t>(i)]; }
    int last(int r, int i) const { return of(r).last[static_cast<size_t>(i)]; }
    std::string name(int r, int i) const {
        return std::string(name_of(at(r, i).opcode)) + " " + std::to_string(i) + " of rank " + std::to_string(r);
    }

    void prepare(int r) {
        const auto size = plan_.class_of(r).stream.size();
        Rank& rank = of(r);
        rank.states.assign(size, State::waiting);
        rank.first.resize(size);
        rank.last.resize(size);
        const bool grouped = contract_.groups_messages();
        for (int i = 0, begin = 0; i < end(r); ++i) {
            if (i == 0 || !grouped || !is_message(at(r, i).opcode) || !is_message(at(r, i - 1).opcode)) begin = i;
            rank.first[static_cast<size_t>(i)] = begin;
            for (int member = begin; member <= i; ++member) rank.last[static_cast<size_t>(member)] = i;
        }
    }

    Lane lane(int r, int i) const {
        const Instruction& in = at(r, i);
        if (in.axis == none) return {true, none, Opcode::kernel};
        if (!is_message(in.opcode) || contract_.lanes == TransportContract::Lanes::communicator)
            return {false, none, Opcode::kernel};
        const bool direction = contract_.lanes == TransportContract::Lanes::peer_and_direction;
        return {false, peer(r, i), direction ? in.opcode : Opcode::kernel};
    }

    /// All compute before `until` is done.
    bool computed(int r, int until) const {
        const auto found = of(r).lanes.find({true, none, Opcode::kernel});
        return found == of(r).lanes.end() || found->second.empty() || found->second.front() >= until;
    }

    /// Nothing that returns only when it is done is under way, and what the next call needs is done where the host
    /// itself has to see to that.
    bool may_issue(int r) const {
        const int next = of(r).next;
        if (next == end(r)) return false;
        const bool calls = at(r, next).axis != none && !contract_.queued;
        for (int wait : at(r, next).waits)
            if (!done(r, wait) && (calls || (at(r, wait).axis != none && !contract_.queued))) return false;
        if (contract_.queued) return true;
        if (calls && !at(r, next).waits.empty() && !computed(r, next)) return false;
        for (const auto& [key, queue] : of(r).lanes)
            for (int i : queue)
                if (at(r, i).axis != none && at(r, i).opcode != Opcode::send && next > last(r, i)) return false;
        return true;
    }

    bool may_begin(int r, int i) const {
        for (int member = first(r, i); member <= last(r, i); ++member) {
            if (state(r, member) != State::issued) return false;
            for (int wait : at(r, member).waits)
                if (!done(r, wait)) return false;
            if (at(r, member).axis != none && !at(r, member).waits.empty() && !computed(r, member)) return false;
        }
        return true;
    }

    /// What is put aside does not keep its sender waiting.
    bool fits_slot(int r, int i) {
        int aside = 0;
        for (int other : edges_[{r, peer(r, i)}].sends) aside += done(r, other);
        return aside < contract_.sends_done_unmet();
    }

    std::vector<Action> enabled() {
        std::vector<Action> can;
        bool gathered = true;
        for (int r = 0; r < count(); ++r) {
            if (may_issue(r)) can.push_back({What::issue, r});
            bool here = false;
            for (const auto& [key, queue] : of(r).lanes) {
                if (queue.empty()) continue;
                const int i = queue.front();
                const Instruction& in = at(r, i);
                if (may_begin(r, i)) can.push_back({What::begin, r, i});
                const bool begun = state(r, i) == State::begun;
                if (begun && (in.axis == none || (in.opcode == Opcode::send && fits_slot(r, i))))
                    can.push_back({What::end, r, i});
                here |= begun && is_collective(in.opcode);
            }
            gathered &= here;
            for (int from = 0; from < count(); ++from) {
                const Edge& edge = edges_[{from, r}];
                if (!edge.sends.empty() && !edge.receives.empty()) can.push_back({What::meet, r, none, from});
            }
        }
        if (gathered) can.push_back({What::gather});
        return can;
    }

    void take(const Action& action) {
        const int r = action.rank;
        switch (action.what) {
            case What::issue:
                state(r, of(r).next) = State::issued;
                of(r).lanes[lane(r, of(r).next)].push_back(of(r).next);
                ++of(r).next;
                break;
            case What::begin:
                for (int i = first(r, action.item); i <= last(r, action.item); ++i) begin(r, i);
                break;
            case What::end: finish(r, action.item); break;
            case What::meet: meet(edges_[{action.from, r}], action.from, r); break;
            case What::gather:
                for (int rank = 0; rank < count(); ++rank)
                    finish(rank, of(rank).lanes[{false, none, Opcode::kernel}].front());
        }
    }

    void begin(int r, int i) {
        state(r, i) = State::begun;
        const Instruction& in = at(r, i);
        if (in.opcode == Opcode::send) edges_[{r, peer(r, i)}].sends.push_back(i);
        if (in.opcode == Opcode::receive) edges_[{peer(r, i), r}].receives.push_back(i);
        for (const auto& [key, queue] : of(r).lanes)
            for (int other : queue)
                if (other != i && state(r, other) >= State::begun) apart(r, i, other);
    }

    /// Neither writes what the other touches.
    void apart(int r, int i, int other) {
        const RankClass& c = plan_.class_of(r);
        for_each_access(c, at(r, i), [&](const Operand& a, bool, bool writes) {
            for_each_access(c, at(r, other), [&](const Operand& b, bool, bool also) {
                if (arena(c, a) != arena(c, b) || !(writes || also)) return;
                if (address(c, a) < address(c, b) + b.type.bytes() && address(c, b) < address(c, a) + a.type.bytes())
                    wrong_ = name(r, i) + " is under way with " + name(r, other) + " on the same bytes";
            });
        });
    }

    void finish(int r, int i) {
        state(r, i) = State::done;
        std::erase(of(r).lanes[lane(r, i)], i);
    }

    void meet(Edge& edge, int from, int to) {
        const int send = edge.sends.front(), receive = edge.receives.front();
        edge.sends.pop_front();
        edge.receives.pop_front();
        if (at(from, send).tag != at(to, receive).tag) wrong_ = name(to, receive) + " meets " + name(from, send);
        met(from, send);
        met(to, receive);
    }

    /// Of a group nothing is done before all of it has met.
    void met(int r, int i) {
        if (done(r, i)) return;  // was put aside
        state(r, i) = State::met;
        for (int member = first(r, i); member <= last(r, i); ++member)
            if (state(r, member) != State::met) return;
        for (int member = first(r, i); member <= last(r, i); ++member) finish(r, member);
    }

    const Plan& plan_;
    const TransportContract contract_;
    std::mt19937_64 random_;
    std::vector<Rank> ranks_;
    std::map<std::pair<int, int>, Edge> edges_;  ///< by sender and receiver
    std::string wrong_;
};

}  // namespace orrery::test
