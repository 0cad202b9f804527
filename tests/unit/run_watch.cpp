// Who is behind when a rank waits too long.
#include <catch2/catch.hpp>

#include "compile/pipeline.h"
#include "layout_models.h"
#include "meeting.h"
#include "plan/summary.h"
#include "run/control/rendezvous.h"
#include "run/control/watch.h"

#include <thread>

using namespace orrery;
using namespace orrery::test;
using Catch::Contains;
using namespace std::chrono_literals;

namespace {

Standing at(int64_t rank, std::vector<int64_t> waits_for, double here_s, const std::string& text) {
    Standing s;
    s.rank = rank;
    s.position = {7, 3, 40, here_s, 5, std::move(waits_for), text};
    s.process = "its process is running";
    return s;
}

}  // namespace

TEST_CASE("a position survives the wire", "[run_watch]") {
    const Position p{12, 3, 40, 1.5, 30, {1, 2, 3}, "all_reduce of %3\nand more"};
    const Position q = Position::decode(p.encode());
    CHECK((q.steps == 12 && q.index == 3 && q.of == 40 && q.here_s == 1.5 && q.bound_s == 30));
    CHECK(q.waits_for == p.waits_for);
    CHECK(q.text == p.text);
    CHECK((q.part == Position::Part::unknown && q.meeting.empty()));
    const Position in{12, 3, 40, 1.5, 30, {1}, "all_reduce of %3\nand more", Position::Part::meets, "12 dp/0 7"};
    const Position out = Position::decode(in.encode());
    CHECK((out.part == in.part && out.meeting == in.meeting && out.text == in.text && out.waits_for == in.waits_for));
    CHECK(Position::decode("").of == 0);
    CHECK_FALSE(q.late());
    CHECK(Position{1, 0, 1, 31, 30, {1}, ""}.late());
    CHECK_FALSE(Position{1, 0, 1, 31, 30, {}, ""}.late());  // computes
}

TEST_CASE("time in which a rank does not run does not count at its position", "[run_watch]") {
    StepWatch watch(0, {}, StepBound(1s, false));
    watch.look();
    std::this_thread::sleep_for(1200ms);  // no heartbeat, as in a job that is suspended
    CHECK(watch.look().here_s < 0.6);
}

namespace {
std::string explained(int64_t late, const std::vector<Standing>& all) { return explain_wait(late, all).text.shown(); }
}  // namespace

TEST_CASE("the rank at the end of the chain of waits is named, with what it does", "[run_watch]") {
    // 0 waits for 1, 1 for 2, 2 computes.
    std::vector<Standing> all{at(0, {1}, 6, "receive of %8"), at(1, {2}, 5.5, "all_reduce of %4"),
                              at(2, {}, 6.2, "matmul of %2 (gpt.lua:30)")};
    std::string text = explained(0, all);
    CHECK_THAT(text, Contains("rank 2 is behind, for 6.2 s: its process is running; last seen in matmul of %2"));
    CHECK_THAT(text, Contains("instruction 4 of 40 of step 7"));
    CHECK_THAT(text, Contains("rank 0 has waited for 6.0 s, longer than the timeout of 5 s, in receive of %8"));
    // A silent one is behind, whatever it did last.
    all[1].silent_s = 5.8;
    all[1].process = "its process is stopped (SIGSTOP)";
    text = explained(0, all);
    CHECK_THAT(text, Contains("rank 1 is behind, and silent for 5.8 s: its process is stopped (SIGSTOP)"));
    all[1].position = {};
    all[1].position.steps = 3;
    CHECK_THAT(explained(0, all), Contains("last seen in between steps, after step 3"));
    const Loss loss = explain_wait(0, all);
    CHECK((loss.cause == Cause::hang && loss.rank == 1 && loss.site == "behind"));
}

TEST_CASE("the bound of a wait follows the longest step", "[run_watch]") {
    StepBound bound(54h, true), given(3s, false);
    CHECK(bound.seconds() == 54 * 3600);
    // The first step begins after 100 s of preparation, and takes 20 s as the second does.
    for (double now = 0; now < 141; now += 0.25) {
        const int64_t begun = now < 100 ? 0 : now < 120 ? 1 : now < 140 ? 2 : 3;
        bound.see(begun, now);
        given.see(begun, now);
        if (begun < 3) CHECK(bound.seconds() == 54 * 3600);
    }
    CHECK(bound.seconds() == Approx(100));
    CHECK(given.seconds() == 3);
    bound.see(4, 150);
    CHECK(bound.seconds() == Approx(100));
    bound.see(5, 210);  // a step and a checkpoint
    CHECK(bound.seconds() == Approx(300));
    StepBound quick(40s, true);
    for (int step = 0; step < 10; ++step) quick.see(step, 0.1 * step);
    CHECK(quick.seconds() == 30);
    for (int step = 10; step < 13; ++step) quick.see(step, 60.0 * step);
    CHECK(quick.seconds() == 40);
}

TEST_CASE("the first bound is in proportion to the device's rate", "[run_watch]") {
    Model m = mlp(8192, 1024, 4096);
    Compiled compiled;
    Persistent persistent;
    const Mesh mesh({{"dp", 1}});
    compiled.programs.push_back({{}, plan_of(distribute(m.program, mesh), mesh, persistent, {})});
    const double flops = summary(compiled.train()).classes[0].flops;
    CHECK(flops > 3e11);
    const auto seconds = [&](double rate) {
        return std::chrono::duration<double>(generous_bound(compiled, rate)).count();
    };
    CHECK(seconds(0) == Approx(4 * flops / 1e9));
    CHECK(seconds(100e9) == Approx(seconds(0) / 4));
    CHECK(seconds(100e12) == 30);
}

TEST_CASE("ranks that wait for each other are told so", "[run_watch]") {
    const std::string text = explained(0, {at(0, {1}, 6, "receive a"), at(1, {0}, 6, "receive b")});
    CHECK_THAT(text, Contains("ranks wait for each other") && Contains("receive a") && Contains("rank 1 in receive b"));
}

TEST_CASE("who takes part in the same is not waited for", "[run_watch]") {
    using Part = Position::Part;
    const auto in = [](Standing s, Part part, std::string meeting) {
        s.position.part = part;
        s.position.meeting = std::move(meeting);
        return s;
    };
    // 0, 1 and 2 are in a sum that 3 has not come to: it receives from 4, which computes.
    const std::string sum = "7 dp/0 2", message = "7 pp/4>3 0";
    std::vector<Standing> all{in(at(0, {1, 2, 3}, 6, "all_reduce of %4"), Part::meets, sum),
                              in(at(1, {0, 2, 3}, 7, "all_reduce of %4"), Part::meets, sum),
                              in(at(2, {0, 1, 3}, 5, "all_reduce of %4"), Part::meets, sum),
                              in(at(3, {4}, 4, "receive of %2"), Part::receives, message),
                              at(4, {}, 8, "matmul of %1")};
    std::string text = explained(0, all);
    CHECK_THAT(text, Contains("rank 4 is behind, for 8.0 s") && Contains("between them rank 3 in receive of %2") &&
                         !Contains("rank 1") && !Contains("rank 2"));
    SECTION("who has told nothing at all is behind") {
        all.pop_back();
        CHECK_THAT(explained(0, all), Contains("rank 4 is behind") && Contains("before its first step"));
    }
    SECTION("a silent one before one that computes") {
        all[2].silent_s = 3;
        CHECK_THAT(explained(0, all), Contains("rank 2 is behind, and silent for 3.0 s"));
    }
    SECTION("all are there: nobody waits for another") {
        all[3] = in(at(3, {0, 1, 2}, 5, "all_reduce of %4"), Part::meets, sum);
        CHECK_THAT(explained(0, all), Contains("no rank is behind") && Contains("no transport ends it") &&
                                          Contains("rank 3 in all_reduce of %4"));
        all[3].position.meeting = "7 dp/0 3";  // a later one: this one is over for it
        CHECK_THAT(explained(0, all), Contains("ranks wait for each other") && Contains("rank 3 in all_reduce"));
    }
    SECTION("both ends of a message") {
        all[4] = in(at(4, {3}, 5, "send of %2"), Part::sends, message);
        CHECK_THAT(explained(3, all), Contains("no rank is behind") && Contains("rank 4 in send of %2"));
        // 3 gets its message and comes to the sum: what 0 reports will end.
        CHECK_THAT(explained(0, all), Contains("no rank is behind"));
    }
    SECTION("a cycle further on, without the one that is late") {
        all[4] = in(at(4, {3}, 5, "receive of %9"), Part::receives, "7 pp/3>4 0");
        text = explained(0, all);
        CHECK_THAT(text, Contains("ranks wait for each other") && Contains("rank 3 in receive of %2") &&
                             Contains("rank 4 in receive of %9") && !Contains("rank 1"));
    }
}

TEST_CASE("a late wait becomes everybody's loss", "[run_watch]") {
    ServeOptions served;
    served.world = 2;
    served.token.secret = "secret";
    const auto server = serve(test::tcp(), served);
    JoinOptions options;
    options.port = server->port();
    options.token.secret = "secret";
    const auto zero = test::tcp().join(options);
    options.rank = 1;
    const auto one = test::tcp().join(options);
    one->tell_position([] { return Position{7, 2, 40, 2.5, 0, {}, "matmul of %2"}.told(); });
    std::this_thread::sleep_for(600ms);
    CHECK(zero->lost().empty());
    zero->tell_position([] { return Position{7, 3, 40, 2, 1, {1}, "all_reduce of %4"}.told(); });
    for (int i = 0; i < 100 && (zero->lost().empty() || one->lost().empty()); ++i) std::this_thread::sleep_for(20ms);
    for (const Member* link : {zero.get(), one.get()})
        CHECK_THAT(link->lost().shown(),
                   Contains("rank 1 is behind") && Contains("matmul of %2") && Contains("all_reduce of %4"));
    zero->tell_position({});
    one->tell_position({});
}
