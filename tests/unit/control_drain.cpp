// The supervisor of a job in which a node is asked to leave; control_supervisor.cpp drives it through made worlds.
#include "control_supervisor.h"

using namespace orrery;
using namespace orrery::test;

TEST_CASE("a drained node leaves once all have saved, and the job resumes with a spare or waits", "[supervisor]") {
    const auto stopped = [](Supervisor& s, int64_t node, double now) {
        return s.ended(node, of_rank(node, Cause::stopped, 75, "was stopped", 7), now);
    };
    const auto of = [](Supervisor::Options options) {
        Supervisor s = started(options);
        if (options.spares > 0) {
            s.came(options.nodes, 1);
            s.checked(options.nodes, Fitness::fit, "", 1);
        }
        return s;
    };
    const Supervisor::Options with_spare{.restarts = 1, .nodes = 3, .spares = 1, .drains = true};
    Supervisor s = of(with_spare);
    s.step_done(7);
    REQUIRE(find(s.drain(1, "signal 15", 10), Kind::stop_ranks));
    CHECK(s.drain(1, "signal 15", 10).empty());
    CHECK(s.draining());
    CHECK(stopped(s, 0, 11).empty());
    const auto leaves = stopped(s, 1, 11);
    REQUIRE(find(leaves, Kind::leave));
    CHECK(find(leaves, Kind::leave)->node == 1);
    CHECK(find(leaves, Kind::leave)->code == 75);
    CHECK(find(leaves, Kind::leave)->text.shown() == "was drained: signal 15");
    const auto again = stopped(s, 2, 12);
    REQUIRE(find(again, Kind::start));
    CHECK(find(again, Kind::start)->nodes == std::vector<int64_t>{0, 3, 2});
    CHECK(sentence_of(*s.restarted_by()).shown() == "node 1 is drained (signal 15)");
    // It takes nothing from the budget, and the node may come again, as a spare.
    CHECK(find(ended(s, 0, killed(0, 7), 13), Kind::finish) == nullptr);
    CHECK(find(s.came(1, 14), Kind::check));

    // Without a spare the job waits for the node as after a loss.
    Supervisor waits = of({.restarts = 1, .nodes = 2, .wait_node_s = 60, .drains = true});
    waits.drain(1, "signal 10", 10);
    stopped(waits, 1, 11);
    CHECK(stopped(waits, 0, 12).empty());
    CHECK(waits.missing().shown() == "node 1 is missing (was drained: signal 10)");
    REQUIRE(waits.next_tick() == 72.0);
    CHECK(find(waits.tick(71), Kind::finish) == nullptr);
    Supervisor comes = waits;
    CHECK(find(waits.tick(72), Kind::finish)->code == 75);
    comes.came(1, 40);
    CHECK(find(comes.checked(1, Fitness::fit, "", 41), Kind::start)->nodes == std::vector<int64_t>{0, 1});
    // Node 0, and any node of a job that does not drain, ends the job.
    for (const bool drains : {true, false}) {
        Supervisor ends = of({.restarts = 1, .nodes = 2, .spares = 1, .drains = drains});
        CHECK(ends.drain(drains ? 0 : 1, "signal 15", 10).empty());
        stopped(ends, 1, 11);
        REQUIRE(find(stopped(ends, 0, 12), Kind::finish));
        CHECK(ends.over());
    }
    // A notice to all nodes is one to node 0, in any order: nothing starts again.
    for (const int64_t first : {1, 0, 2}) {
        Supervisor all = of(with_spare);
        all.drain(first, "signal 15", 10);
        for (const int64_t node : {0, 1, 2, 3}) CHECK(find(all.drain(node, "signal 15", 10), Kind::start) == nullptr);
        for (const int64_t node : {1, 2}) CHECK(find(stopped(all, node, 11), Kind::start) == nullptr);
        CHECK(find(stopped(all, 0, 12), Kind::finish)->code == 75);
    }
    // A spare leaves at once, and the ranks run on; so does a node while the job waits for another.
    Supervisor spare = of(with_spare);
    const auto gone = spare.drain(3, "signal 15", 10);
    REQUIRE(gone.size() == 1);
    CHECK(gone[0].kind == Kind::leave);
    spare.lost(2, "died", 11);
    for (const int64_t node : {0, 1}) spare.ended(node, killed(node, 5, Cause::error), 12);
    CHECK(find(spare.drain(1, "signal 15", 13), Kind::leave));
    CHECK(spare.missing().shown() == "node 1 is missing (was drained: signal 15); node 2 is missing (died)");
    // A failure while all save counts as such, and the node leaves as well; a loss of it does not end the job.
    Supervisor fails = of(with_spare);
    fails.drain(2, "signal 15", 10);
    stopped(fails, 0, 11);
    CHECK(find(fails.ended(1, killed(1, 5, Cause::error), 11), Kind::end_ranks));
    const auto end = fails.ended(2, killed(2, 5, Cause::hang), 12);
    CHECK(find(end, Kind::leave)->node == 2);
    CHECK(find(end, Kind::start)->nodes == std::vector<int64_t>{0, 1, 3});
    CHECK(fails.restarted_by()->cause == Cause::error);
    Supervisor dies = of(with_spare);
    dies.drain(2, "signal 15", 10);
    stopped(dies, 0, 11);
    dies.lost(2, "died", 11);
    CHECK(find(stopped(dies, 1, 12), Kind::start)->nodes == std::vector<int64_t>{0, 1, 3});
    // After the last step there is nothing to resume.
    Supervisor done = of(with_spare);
    done.drain(1, "signal 15", 10);
    for (const int64_t node : {1, 0}) CHECK(done.ended(node, {}, 11).empty());
    CHECK(find(done.ended(2, {}, 11), Kind::finish)->code == 0);
}
