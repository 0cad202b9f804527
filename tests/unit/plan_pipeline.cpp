// Programs of several stages: the numbers of one rank, whatever the schedule, the cut and the other axes.
#include <catch2/catch.hpp>

#include "layout_models.h"
#include "plan/print.h"
#include "plan_ranks.h"
#include "schedules.h"
#include "slots.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;

namespace {

TransportContract lanes(TransportContract::Lanes lanes) {
    TransportContract contract;
    contract.lanes = lanes;
    return contract;
}

CompileOptions options_for(const Schedule& schedule) {
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts["pp"] = lanes(TransportContract::Lanes::peer_and_direction);
    return options;
}

Lowered pipelined(Model& m, const Mesh& mesh, const Schedule& schedule, int chunks = 1) {
    m.program.pipeline({"pp", schedule.name, chunks, {}});
    return compile(m.program, mesh, options_for(schedule));
}

Contents expected(const std::vector<int>& stages, bool tied) {
    Model m = network(stages, tied);
    return run_steps(compile(m.program, Mesh()), 2).values;
}

}  // namespace

TEST_CASE("pipeline: two stages give the numbers of one rank") {
    const Mesh mesh = Mesh({{"pp", 2}}).with_microbatches(4);
    for (bool tied : {false, true})
        for (const Schedule& schedule : {hand_gpipe(2, 4), hand_1f1b(2, 4)}) {
            INFO(schedule.name << (tied ? " tied" : ""));
            Model m = network({0, 1}, tied);
            CHECK(difference(run_steps(pipelined(m, mesh, schedule), 2).values, expected({0, 1}, tied), 2e-5) == "");
        }
}

TEST_CASE("pipeline: uneven stages, layers out of balance, a stage of the head alone") {
    const Mesh mesh = Mesh({{"pp", 4}}).with_microbatches(4);
    for (const std::vector<int>& stages : {std::vector<int>{0, 0, 1, 2, 3}, {0, 1, 2, 2, 2}, {1, 1, 1, 1, 2}}) {
        Model m = network(stages, true);
        CHECK(difference(run_steps(pipelined(m, mesh, hand_1f1b(4, 4)), 2).values, expected(stages, true), 2e-5) == "");
    }
}

TEST_CASE("pipeline: chunks, weight gradients apart, a rank that passes to itself") {
    const Mesh mesh = Mesh({{"pp", 2}}).with_microbatches(4);
    const std::vector<int> stages{0, 1, 2, 3};
    const Contents one = expected(stages, true);
    const Schedule interleaved = hand_interleaved(), vee = hand_vee();
    for (const Schedule& schedule : {interleaved, vee}) {
        INFO(schedule.name);
        Model m = network(stages, true);
        CHECK(difference(run_steps(pipelined(m, mesh, schedule, 2), 2).values, one, 2e-5) == "");
    }
    const Schedule late =
        by_hand("late", {"F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3", "F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3"});
    Model m = network({0, 1}, true);
    CHECK(difference(run_steps(pipelined(m, mesh, late), 2).values, expected({0, 1}, true), 2e-5) == "");
}

TEST_CASE("pipeline: with data and tensor parallelism, any order of axes") {
    const Contents one = expected({0, 1}, true);
    for (const std::vector<Axis>& axes :
         {std::vector<Axis>{{"pp", 2}, {"dp", 2}, {"tp", 2}}, {{"dp", 2}, {"tp", 2}, {"pp", 2}}}) {
        Model m = network({0, 1}, true);
        m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
        m.program.bucket("dp", 1 << 20, {});
        const Lowered lowered = pipelined(m, Mesh(axes).with_microbatches(2), hand_1f1b(2, 2));
        REQUIRE(lowered.plan.classes.size() == 2);
        CHECK(lowered.plan.classes[0].ranks.size() == 4);
        CHECK(difference(run_steps(lowered, 2).values, one, 2e-5) == "");
    }
}

TEST_CASE("pipeline: one micro-batch") {
    Model m = network({0, 1}, true);
    CHECK(difference(run_steps(pipelined(m, Mesh({{"pp", 2}}), hand_gpipe(2, 1)), 2).values, expected({0, 1}, true),
                     2e-5) == "");
}

TEST_CASE("pipeline: weight gradients have their slots with one micro-batch as with many") {
    const std::vector<std::vector<int>> vee{{0, 3}, {1, 2}};
    const char* turn = "F0 F0.1 B0.1 W0.1 B0 W0";
    const char* turn_twice = "F0 F0.1 F1 F1.1 B0.1 W0.1 B0 W0 B1.1 W1.1 B1 W1";
    const std::vector<Schedule> one{by_hand("late", {"F0 B0 W0", "F0 B0 W0"}), by_hand("vee", {turn, turn}, vee)};
    const std::vector<Schedule> two{by_hand("late", {"F0 F1 B0 W0 B1 W1", "F0 B0 F1 B1 W0 W1"}),
                                    by_hand("vee", {turn_twice, turn_twice}, vee)};
    for (bool tied : {false, true})
        for (size_t s = 0; s < one.size(); ++s) {
            INFO(one[s].name << (tied ? " tied" : ""));
            const std::vector<int> stages = s == 0 ? std::vector<int>{0, 1} : std::vector<int>{0, 1, 2, 3};
            Model m = network(stages, tied), many = network(stages, tied);
            const Lowered lowered = pipelined(m, Mesh({{"pp", 2}}), one[s], s == 0 ? 1 : 2);
            const Plan twice = pipelined(many, Mesh({{"pp", 2}}).with_microbatches(2), two[s], s == 0 ? 1 : 2).plan;
            for (size_t r = 0; r < 2; ++r) {
                const RankClass& c = lowered.plan.classes[r];
                CHECK(executed(c, lowered.plan.program).text() == one[s].ranks[r].text());
                for (Fragment::Kind kind : {Fragment::Kind::backward, Fragment::Kind::weight})
                    CHECK(ops_in(kind, c, lowered.plan.program) == ops_in(kind, twice.classes[r], twice.program));
            }
            // Two products a layer, one with its bias; the table once, or twice with a sum of both.
            CHECK(ops_in(Fragment::Kind::weight, lowered.plan.classes[0], lowered.plan.program).size() >= 3);
            CHECK(difference(run_steps(lowered, 2).values, expected(stages, tied), 2e-5) == "");
        }
}

TEST_CASE("pipeline: a tied table is sent once a step, and its gradient once") {
    const Mesh mesh = Mesh({{"pp", 2}}).with_microbatches(4);
    Model m = network({0, 1}, true);
    const Lowered lowered = pipelined(m, mesh, hand_1f1b(2, 4));
    int64_t table = 0, activations = 0;
    for (const RankClass& c : lowered.plan.classes)
        for (const Instruction& i : c.stream) {
            if (i.opcode != Opcode::send) continue;
            (i.fragment.micro < 0 ? table : activations) += 1;
        }
    CHECK(table == 2);
    CHECK(activations == 8);
    // Who rests where: the table and its states on the first rank alone.
    for (const Operand& place : lowered.plan.classes[1].places)
        CHECK(lowered.plan.program.value(place.value).name.rfind("table", 0) == std::string::npos);
}

TEST_CASE("pipeline: a rank keeps the params of its stages alone") {
    const Mesh mesh = Mesh({{"pp", 2}}).with_microbatches(2);
    Model m = network({0, 0, 0, 1}, false);
    const Lowered lowered = pipelined(m, mesh, hand_1f1b(2, 2));
    const std::vector<RankClass>& classes = lowered.plan.classes;
    CHECK(classes[0].persistent_bytes > 2 * classes[1].persistent_bytes);
    CHECK(lowered.persistent.bytes(0) == classes[0].persistent_bytes);
    CHECK(lowered.persistent.bytes(1) == classes[1].persistent_bytes);
}

TEST_CASE("pipeline: schedules that are wrong are refused before a rank starts") {
    const Mesh mesh = Mesh({{"pp", 2}}).with_microbatches(2);
    const auto with = [&](const std::vector<const char*>& orders) {
        Model m = network({0, 1}, true);
        Schedule schedule = by_hand("mine", orders);
        schedule.origin = {"", "mine.lua", 3, 0};
        pipelined(m, mesh, schedule);
    };
    const char* good = "F0 F1 B0 B1";
    CHECK_NOTHROW(with({good, good}));
    CHECK_THROWS_WITH(with({good, "F0 B0 F1"}),
                      Contains("mine.lua:3") && Contains("never runs B1 on pipeline rank 1 (stage 1)"));
    CHECK_THROWS_WITH(with({"B0 F0 F1 B1", good}),
                      Contains("mine.lua:3") && Contains("runs B0 before F0 on pipeline rank 0 (stage 0)"));
    CHECK_THROWS_WITH(with({"F0 B0 F1 B1", "F0 F1 B0 B1"}), Contains("mine.lua:3") && Contains("never ends"));
    CHECK_THROWS_WITH(with({"F0 F1 F1 B0 B1", good}),
                      Contains("mine.lua:3: runs F1 twice on pipeline rank 0 (stage 0)"));
    CHECK_THROWS_WITH(with({good, "F0 F1 B0 B1 B1"}),
                      Contains("mine.lua:3: runs B1 twice on pipeline rank 1 (stage 1)"));
    CHECK_THROWS_WITH(with({"F0 F1 B0 W0 B1 W1", good}),
                      Contains("never runs W0 on pipeline rank 1 (stage 1); where one rank has a W, all run every W"));
    CHECK_THROWS_WITH(with({"F0 F1.4 B0 B1", good}),
                      Contains("runs F1.4 on pipeline rank 0, which has no chunk 4: it runs one stage"));
    CHECK_THROWS_WITH(with({"F0 F1 B0 B1", "F1 B1 F0 B0 F2"}), Contains("there are 2 micro-batches, counted from 0"));
    CHECK_THROWS_WITH(with({good}), Contains("mine"));
}

TEST_CASE("pipeline: what it cannot run names the line that asked, and what to change") {
    const auto why = [](int64_t ranks, const std::vector<int>& stages) {
        Model m = network(stages, false);
        m.program.pipeline({"pp", "mine", 1, {"", "mine.lua", 7, 0}});
        try {
            const Schedule orders = by_hand("mine", {"F0 F1 B0", "F0 B0 F1 B1"});
            compile(m.program, Mesh({{"pp", ranks}}).with_microbatches(2), options_for(orders));
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK_THAT(why(3, {0, 2}),
               Contains("mine.lua:7") && Contains("stage 1 of 3 has no op: give it a layer, or use fewer ranks on pp"));
    CHECK_THAT(why(2, {0, 1}), Contains("mine.lua:7") &&
                                   Contains("schedule mine: never runs B1 on pipeline rank 0 (stage 0)\n  ") &&
                                   Contains("requested: 2 stages, 1 a rank, and 2 micro-batches"));
}

TEST_CASE("pipeline: stages must follow the data") {
    Model m = network({1, 0}, false);
    CHECK_THROWS_WITH(pipelined(m, Mesh({{"pp", 2}}).with_microbatches(2), hand_1f1b(2, 2)),
                      Contains("against the order of the forward pass") && Contains("model.lua"));
}

namespace {

/// The plan of a schedule whose exchanges stand together, and whether it ends under a contract.
std::string ends(const Schedule& schedule, TransportContract::Send send, int slots, TransportContract::Lanes how) {
    Model m = network({0, 1}, false);
    m.program.pipeline({"pp", schedule.name, 1, {}});
    TransportContract contract = lanes(how);
    contract.send = send;
    contract.slots = slots;
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts["pp"] = contract;
    Persistent persistent;
    const Mesh mesh = Mesh({{"pp", 2}}).with_microbatches(4);
    const Plan plan = plan_of(distribute(m.program, mesh), mesh, persistent, options);
    try {
        check(plan, options.contracts);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("pipeline: deadlocks only under rendezvous sends, or only with one lane, are found") {
    using C = TransportContract;
    Schedule schedule = hand_1f1b(2, 4);
    schedule.origin = {"", "mine.lua", 3, 0};
    // 1F1B: both ranks send to each other first. With one lane that ends only where sends are buffered or grouped.
    const std::string met = ends(schedule, C::Send::rendezvous, 0, C::Lanes::communicator);
    CHECK_THAT(met, Contains("mine.lua:3") && Contains("never ends") && Contains("which waits for") &&
                        Contains("of stage 0") && Contains("of stage 1") && Contains("send"));
    CHECK(ends(schedule, C::Send::buffered, 1, C::Lanes::communicator) == "");
    CHECK(ends(schedule, C::Send::grouped, 0, C::Lanes::communicator) == "");
    CHECK(ends(schedule, C::Send::rendezvous, 0, C::Lanes::peer_and_direction) == "");
    // GPipe never sends both ways at once.
    CHECK(ends(hand_gpipe(2, 4), C::Send::rendezvous, 0, C::Lanes::communicator) == "");
}
