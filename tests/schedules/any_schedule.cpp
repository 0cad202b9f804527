// Schedules that nobody has written: random orders of fragments, legal ones and such as were broken, under the contract
// of every transport. ORRERY_LONG: 1,000 of each, and a table.
#include "drawn.h"
#include "plan_stepper.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;

namespace {

Schedule by_hand(const std::vector<const char*>& orders) {
    Schedule schedule{"mine", {}, {}, {"", "mine.lua", 3, 0}};
    for (const char* order : orders) schedule.ranks.push_back(RankSchedule::parse(order));
    return schedule;
}

}  // namespace

TEST_CASE("what one group receives never lies where the same group sends from", "[contract][schedules]") {
    // Rank 0 sends F1's value and receives two gradients at one moment; the first of these frees what F1 was made from.
    const Drawn drawn{by_hand({"F2 F0 B0 F1 B2 B1", "F2 F0 B0 F1 B1 B2"}), 1, 3, false};
    const Program program = distribute(model(drawn, false).program, mesh(drawn));
    for (const auto& [name, contract] : shipped()) {
        INFO(name);
        Lowered lowered;
        CHECK(refusal(drawn.schedule, program, mesh(drawn), contract, lowered) == "");
        CHECK(Stepper(lowered.plan, contract, 1).run() == "");
    }
}

TEST_CASE("any legal schedule runs on every transport", "[contract][schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(60, 1000);
    const std::map<std::string, C> contracts = shipped();
    REQUIRE(contracts.count("nccl") == 1);
    std::map<std::string, int> ran;
    int over_several = 0;  // jobs with a message over several axes
    Random random(11);
    for (int at = 0; at < count; ++at) {
        const Drawn drawn = draw(random);
        REQUIRE(legal(drawn));
        Model m = model(drawn, below(random, 2) == 1);
        const bool more = at % 4 == 3;
        const Mesh all = more ? with_collectives(m, drawn) : mesh(drawn);
        const Program program = distribute(m.program, all, carried(all, at / 4 % 2 == 1));
        bool joined = false;
        for (const auto& [name, contract] : contracts) {
            INFO(fmt::format("schedule {} on {}, {}", at, name, drawn.text()));
            Lowered lowered;
            const std::string why = refusal(drawn.schedule, program, all, contract, lowered);
            CHECK(why == "");
            if (why == "" && !more) CHECK(Stepper(lowered.plan, contract, static_cast<uint64_t>(at)).run() == "");
            ran[name] += why == "";
            joined = joined || !joined_axes({&lowered.plan}).empty();
        }
        over_several += joined;
    }
    CHECK(over_several == count / 8);
    for (const auto& [name, n] : ran) sweep.note(fmt::format("{}: {} of {} legal schedules accepted", name, n, count));
}

TEST_CASE("a schedule that cannot run is refused by name and line", "[contract][schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(60, 1000);
    const std::map<std::string, C> contracts = shipped();
    Random random(12);
    int refused = 0;
    for (int at = 0; at < count; ++at) {
        const Drawn drawn = broken(draw(random), random);
        const bool good = legal(drawn);
        const Program program = distribute(model(drawn, true).program, mesh(drawn));
        refused += !good;
        for (const auto& [name, contract] : contracts) {
            INFO(fmt::format("mutant {} on {}, {}", at, name, drawn.text()));
            Lowered lowered;
            const std::string why = refusal(drawn.schedule, program, mesh(drawn), contract, lowered);
            if (good) {
                CHECK(why == "");
            } else {
                CHECK_THAT(why, Catch::StartsWith("schedule drawn, drawn.lua:3: ") && !Contains("instruction"));
            }
        }
    }
    CHECK(refused > count / 2);
    sweep.note(fmt::format("broken schedules: {} refused on every transport, {} still legal and accepted", refused,
                           count - refused));
}

TEST_CASE("whether messages in another order end is judged alike by two", "[contract][schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(100, 3000);
    const std::map<std::string, C> contracts = shipped();
    Random random(13);
    int stuck = 0, raced = 0, ended = 0;
    for (int at = 0; at < count; ++at) {
        const Drawn drawn = draw(random);
        const auto& [name, contract] = *std::next(contracts.begin(), static_cast<int>(below(random, contracts.size())));
        INFO(fmt::format("plan {} on {}, {}", at, name, drawn.text()));
        Lowered lowered;
        REQUIRE(refusal(drawn.schedule, distribute(model(drawn, false).program, mesh(drawn)), mesh(drawn), contract,
                        lowered) == "");
        swap_messages(lowered.plan, random);
        const std::string why = Stepper(lowered.plan, contract, static_cast<uint64_t>(at)).run();
        INFO(why);
        const Network given{{"pp", contract}};
        if (why == "") {
            CHECK_NOTHROW(check_deadlock(lowered.plan, given));
            ++ended;
        } else if (why.find("same bytes") != std::string::npos) {
            CHECK_THROWS_AS(check(lowered.plan, given), Error);
            ++raced;
        } else {
            CHECK_THROWS_AS(check_deadlock(lowered.plan, given), Error);
            ++stuck;
        }
    }
    CHECK(stuck > 0);
    CHECK(ended > 0);
    sweep.note(
        fmt::format("plans with two messages swapped: {} never end, {} touch the same bytes, {} end; both judges "
                    "agree on all {}",
                    stuck, raced, ended, count));
}

TEST_CASE("any legal schedule gives the loss of one rank, bit for bit", "[schedules][any]") {
    const Sweep sweep;
    const int count = sweep.count(10, 100);
    Random random(14);
    for (int at = 0; at < count; ++at) {
        const Drawn drawn = draw(random);
        INFO(fmt::format("schedule {}, {}", at, drawn.text()));
        // One rank takes the micro-batches as the last stage does: sums of the loss have one order.
        Schedule alone{"alone", {RankSchedule{}}, {}, {}};
        for (size_t r = 0; r < drawn.schedule.ranks.size(); ++r)
            for (const Fragment& f : drawn.schedule.ranks[r].order)
                if (f.kind == Kind::forward &&
                    drawn.schedule.stage_of(static_cast<int>(r), f.chunk) + 1 == drawn.stages())
                    for (Kind kind : {Kind::forward, Kind::backward})
                        alone.ranks[0].order.push_back({kind, f.micro, 0});
        const Mesh one = Mesh().with_microbatches(drawn.micros);
        Model m = model(drawn, at % 2 == 1), same = model(drawn, at % 2 == 1);
        Lowered apart, whole;
        REQUIRE(refusal(drawn.schedule, distribute(m.program, mesh(drawn)), mesh(drawn),
                        conformance::contract_of({"threads", false, {}}), apart) == "");
        REQUIRE(refusal(alone, distribute(same.program, one), one, {}, whole) == "");
        Running how;
        how.steps = 2;
        how.every_step = true;
        const Ran many = run_steps(apart, how), single = run_steps(whole, how);
        CHECK(many.steps[0].at("result loss_sum") == single.steps[0].at("result loss_sum"));
        CHECK(difference(many.values, single.values, 2e-5) == "");
    }
    sweep.note(fmt::format("run on threads: {} of {} with the loss of one rank", count, count));
}
