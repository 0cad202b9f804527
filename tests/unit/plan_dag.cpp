// A view condensed to a graph ends when the engine says.
#include "plan/replay/dag.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

using namespace orrery;

namespace {

class Costs final : public ReplayPolicy {
public:
    explicit Costs(const std::vector<double>& of) : of_(of) {}
    int64_t cost(int item) override { return static_cast<int64_t>(of_[static_cast<size_t>(item)]); }
    /// The one of its members whose cost counts, as the graph asks for it: the first that was added.
    void met_all(const std::vector<int>& members) override {
        const int first = *std::min_element(members.begin(), members.end());
        for (const int member : members) of_[static_cast<size_t>(member)] = of_[static_cast<size_t>(first)];
    }

private:
    std::vector<double> of_;
};

double replayed(const ReplayView& view, const std::vector<double>& costs) {
    Costs policy(costs);
    Replay replay(view, policy);
    replay.run();
    int64_t end = 0;
    for (int i = 0; i < view.size(); ++i) {
        REQUIRE(replay.done(i));
        end = std::max(end, replay.done_at(i));
    }
    return static_cast<double>(end);
}

/// Things that happen one after the other, told to the actors: none waits for a later one, so that the view ends.
class Random {
public:
    explicit Random(unsigned seed) : random_(seed) {}

    ReplayView view(int events) {
        lists_.assign(actors, {});
        for (int e = 0; e < events; ++e) {
            for (size_t actor = 0; actor < actors; ++actor) before_[actor] = static_cast<int>(lists_[actor].size());
            const int kind = below(10), a = below(actors), b = (a + 1 + below(actors - 1)) % actors;
            if (kind < 5) {
                enter(a, {.kind = ReplayItem::Kind::work, .lane = below(3) - 1});
            } else if (kind < 7) {
                message(a, b, none, none);
            } else if (kind < 9) {  // both ways, each actor's two together
                message(a, b, 2 * e, 2 * e + 1);
                message(b, a, 2 * e + 1, 2 * e);
            } else {
                for (int actor = 0; actor < actors; ++actor)
                    enter(actor, {.kind = ReplayItem::Kind::meet, .lane = 3, .channel = 0});
            }
        }
        return added();
    }

private:
    static constexpr int actors = 3;
    struct Planned {
        ReplayItem item;
        std::vector<std::pair<int, int>> waits, holds;  // actor, place in its list
        std::pair<int, int> held{none, 0};
    };

    int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }

    void enter(int actor, ReplayItem item, bool alone = true) {
        Planned planned;
        planned.item = item;
        const auto any = [&](int of) { return before_[static_cast<size_t>(of)] > 0; };
        const auto earlier = [&](int of) { return std::pair{of, below(before_[static_cast<size_t>(of)])}; };
        for (int other = 0; other < actors && alone; ++other)
            if (any(other) && below(3) == 0) planned.waits.push_back(earlier(other));
        if (alone && any(actor)) {
            if (below(4) == 0) planned.holds.push_back(earlier(actor));
            if (below(6) == 0) planned.held = earlier(actor);
        }
        lists_[static_cast<size_t>(actor)].push_back(planned);
    }

    void message(int from, int to, int send_group, int receive_group) {
        const int channel = from * actors + to;
        constexpr int lane = 4;
        enter(from, {.kind = ReplayItem::Kind::send, .lane = lane, .channel = channel, .group = send_group},
              send_group == none);
        enter(to, {.kind = ReplayItem::Kind::receive, .lane = lane, .channel = channel, .group = receive_group},
              receive_group == none);
    }

    ReplayView added() {
        ReplayView view;
        std::vector<int> first{0};
        for (const auto& list : lists_) first.push_back(first.back() + static_cast<int>(list.size()));
        const auto id = [&](const std::pair<int, int>& place) {
            return first[static_cast<size_t>(place.first)] + place.second;
        };
        for (int channel = 0; channel < actors * actors; ++channel) view.add_channel(0);
        view.add_meeting(actors);
        std::map<int, int> groups;
        for (const auto& list : lists_) {
            view.add_actor();
            for (const Planned& planned : list) {
                ReplayItem item = planned.item;
                if (item.group != none) {
                    const auto [known, fresh] = groups.try_emplace(item.group, none);
                    if (fresh) known->second = view.add_group();
                    item.group = known->second;
                }
                if (planned.held.first != none) item.held = id(planned.held);
                std::vector<int> waits, holds;
                for (const auto& wait : planned.waits) waits.push_back(id(wait));
                for (const auto& hold : planned.holds) holds.push_back(id(hold));
                view.add(item, waits, holds);
            }
        }
        return view;
    }

    std::mt19937 random_;
    std::vector<std::vector<Planned>> lists_;
    int before_[actors] = {};  ///< by actor: items of earlier events
};

}  // namespace

TEST_CASE("dag: a view condensed to a graph ends when the engine says", "[plan]") {
    for (unsigned seed = 1; seed <= 200; ++seed) {
        const ReplayView view = Random(seed).view(60);
        std::mt19937 random(seed);
        std::vector<double> costs;
        for (int i = 0; i < view.size(); ++i) costs.push_back(static_cast<double>(random() % 1000));
        const Dag dag = condensed(view, [](int item) { return Amounts{{item, 1.0F}}; });
        INFO("seed " << seed);
        std::vector<double> slopes;
        CHECK(dag.play(costs, &slopes) == replayed(view, costs));
        double sum = 0;
        for (size_t i = 0; i < slopes.size(); ++i) sum += slopes[i] * costs[i];
        CHECK(sum == dag.play(costs));
    }
}

TEST_CASE("dag: what follows each other without a choice is one node", "[plan]") {
    ReplayView view;
    view.add_actor();
    for (int i = 0; i < 100; ++i) view.add({.lane = i % 2}, i == 0 ? std::vector<int>{} : std::vector<int>{i - 1});
    const Dag dag = condensed(view, [](int item) { return Amounts{{item % 3, 1.0F}}; });
    CHECK(dag.nodes.size() == 1);
    CHECK(dag.play({1, 10, 100}) == 34 + 330 + 3300);
}

TEST_CASE("dag: parts that wait for each other are told", "[plan]") {
    ReplayView view;
    view.add_actor();
    view.add({.lane = 0}, {1});
    view.add({.lane = 1}, {0});
    CHECK_THROWS_WITH(condensed(view, [](int) { return Amounts{}; }), Catch::Contains("2 of 2 parts"));
}
