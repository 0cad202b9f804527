// Tables of measured costs as the simulator takes them: without turns on processors, joined, refitted.
#include "sim/local/local_costs.h"

#include <catch2/catch.hpp>

#include "orrery/error.h"

using namespace orrery;

namespace {

KernelSpec gelu(int64_t rows) { return {"gelu", {}, {{DType::f32, {rows, 64}}}, {{DType::f32, {rows, 64}}}}; }

/// Of a run of `ranks` of one thread on two processors.
CostTable run(int ranks) {
    CostTable t;
    t.made_by = "run";
    t.device = "cpu";
    t.machine = "model name=Some CPU\nthreads=1\n";
    t.facts = {{"ranks", std::to_string(ranks)}, {"hosts", "1"}, {"processors", "2"}, {"steps", "10"}};
    t.totals = {{"step", 0.1}, {"compute", 0.06}, {"communication", 0.02}, {"waiting", 0.005}};
    t.kernels = {{gelu(8), 1, {4e-3, 1e-3, {}, 100}, ranks - 1}};
    t.wires = {{"shm", "all_reduce", 2, 4096, {8e-3, 1e-3, {}, 10}, {}, "dp", 9e-3},
               {"shm", "message", 2, 64, {5e-3, 2e-5, {}, 10}, {}, "pp", 5e-3}};
    return t;
}

CostTable timed(double kernel_s, double message_s) {
    CostTable t;
    t.made_by = "calibrate";
    t.device = "cpu";
    t.machine = "threads=1\nmodel name=Some CPU\n";
    t.facts = {{"processors", "2"}};
    t.kernels = {{gelu(8), 1, {kernel_s, {}, 0.01, 30}}, {gelu(16), 1, {2 * kernel_s, {}, 0.01, 30}}};
    t.wires = {{"shm", "message", 2, 64, {message_s, {}, {}, 7}, 1e-6}};
    return t;
}

}  // namespace

TEST_CASE("local costs: what was measured in turns is told without them") {
    const CostTable two = plain_costs(run(2));
    CHECK(two.made_by == "calibrate");
    CHECK(two.kernels.at(0).time.seconds == 4e-3);  // each rank had a processor
    CHECK(two.kernels.at(0).beside == 1);
    CHECK(two.wires.at(0).time.seconds == 8e-3);
    CHECK(two.wires.at(1).time.seconds == 2e-5);  // its mean holds the wait for the sender
    CHECK(total_of(two, "rest") == Approx(0.015));
    CHECK(total_of(two, "step") == 0);

    const CostTable eight = plain_costs(run(8));
    CHECK(eight.kernels.at(0).time.seconds == Approx(1e-3));  // four took turns; its fastest says the same
    CHECK(eight.kernels.at(0).beside == 1);                   // two at once
    CHECK(eight.wires.at(0).time.seconds == 1e-3);            // the others hold waits for a turn
    CostTable given = run(8);
    given.totals.emplace_back("processing", 0.03);  // of the 0.06 in kernels
    CHECK(plain_costs(given).kernels.at(0).time.seconds == 2e-3);
    CostTable slow = run(8);
    slow.kernels[0].time.least_s = 3e-3;  // no launch was ever so fast as a fourth
    CHECK(plain_costs(slow).kernels.at(0).time.seconds == 3e-3);
    CHECK(plain_costs(timed(1e-3, 1e-5)).kernels.at(0).time.seconds == 1e-3);
}

TEST_CASE("local costs: later tables go first") {
    const CostTable both = joined_costs({timed(1e-3, 1e-5), plain_costs(run(2))});
    REQUIRE(both.kernels.size() == 3);  // alone and beside another are two rows
    CHECK(both.kernels.at(0).time.seconds == 1e-3);
    CHECK(both.kernels.at(2).beside == 1);
    REQUIRE(both.wires.size() == 2);
    CHECK(both.wires.at(0).time.seconds == 2e-5);
    CHECK(joined_costs({plain_costs(run(2)), timed(1e-3, 1e-5)}).wires.at(1).time.seconds == 1e-5);
    CostTable gpu = timed(1, 1);
    gpu.device = "cuda";
    CHECK_THROWS_WITH(joined_costs({timed(1, 1), gpu}), Catch::Contains("\"cpu\" and \"cuda\""));
    CHECK_THROWS_AS(joined_costs({}), Error);
}

TEST_CASE("local costs: ranks that took turns say what nobody else does") {
    CostTable eight = run(8);
    eight.kernels.push_back({gelu(32), 1, {8e-3, 2e-3, {}, 10}, 7});
    eight.wires.push_back({"gloo", "all_reduce", 2, 4096, {8e-3, 1e-3, {}, 10}, {}, "dp", 9e-3});
    for (const bool first : {true, false}) {
        const CostTable a = plain_costs(eight), b = plain_costs(run(2));
        const CostTable both = first ? joined_costs({a, b}) : joined_costs({b, a});
        REQUIRE(both.kernels.size() == 2);
        REQUIRE(both.wires.size() == 3);
        for (const KernelCost& row : both.kernels) CHECK(row.time.seconds == (row.spec == gelu(8) ? 4e-3 : 2e-3));
        for (const WireCost& row : both.wires)
            if (row.op == "all_reduce") CHECK(row.time.seconds == (row.transport == "shm" ? 8e-3 : 1e-3));
    }
    CHECK(refitted(nullptr, {eight, run(2)}).kernels.at(1).time.seconds == 4e-3);
    const CostTable kept = plain_costs(run(2));
    CHECK(refitted(&kept, {eight}).kernels.size() == 2);
}

TEST_CASE("local costs: runs refit a table") {
    CostTable other = run(2);
    other.kernels[0].time = {8e-3, 9e-4, {}, 300};
    other.totals[0].second = 0.2;
    const CostTable kept = timed(1e-3, 1e-5);
    const CostTable fit = refitted(&kept, {run(2), other});
    REQUIRE(fit.kernels.size() == 3);
    CHECK(fit.kernels.at(0).time.seconds == 1e-3);
    CHECK(fit.kernels.at(2).time.seconds == Approx(7e-3));  // 100 of 4 ms, 300 of 8 ms
    CHECK(*fit.kernels.at(2).time.least_s == 9e-4);
    REQUIRE(fit.wires.size() == 2);
    CHECK(fit.wires.at(0).time.seconds == 1e-5);  // a message that was timed stays
    CHECK(total_of(fit, "rest") == Approx((0.015 + 0.115) / 2));
    CHECK(refitted(nullptr, {run(2)}).wires.size() == 2);
    CostTable calibrated = kept;
    calibrated.wires.push_back({"shm", "all_reduce", 2, 1024, {1e-5, {}, {}, 7}, 1e-6});
    CHECK(refitted(&calibrated, {run(2)}).wires.size() == 2);  // no 4096 bytes with the run's waits
    CHECK_THROWS_AS(refitted(&kept, {}), Error);
    // What is written is read back, and once more refitted.
    const CostTable again = parse_cost_table(cost_table_text(fit), "t.json");
    CHECK(again.kernels.at(2).beside == 1);
    CHECK(refitted(&again, {run(2)}).kernels.at(2).time.seconds == 4e-3);
}

TEST_CASE("local costs: machines are the same whatever the order of their lines") {
    CHECK(same_machine("a=1\nb=2\n", "b=2\na=1"));
    CHECK_FALSE(same_machine("a=1\nb=2\n", "a=1\nb=3\n"));
}

TEST_CASE("local costs: another machine is told by what differs first") {
    const std::string here = "model name=Fast CPU\nstepping=2\nflags=123\nbuild=aa\nthreads=1\n";
    CHECK(other_machine(here, here) == "");
    // Another build and other threads are of the same machine, and no table of one can be the other's.
    const std::string built = "threads=2\nbuild=bb\nflags=123\nstepping=2\nmodel name=Fast CPU\n";
    CHECK(other_machine(built, here) == "");
    CHECK(differences(built, here, "there") == "threads 2, there 1, and 1 line more");
    CHECK(other_machine("model name=Slow CPU\nstepping=2\nflags=123\n", here) ==
          "costs are of another machine: processor Slow CPU, here Fast CPU");
    CHECK(other_machine("device=H100\n", here) ==
          "costs are of another machine: device H100, here not known, and 3 lines more");
    CHECK(other_machine("model name=Fast CPU\nstepping=2\nflags=7\n", here) ==
          "costs are of another machine: the processor has other flags");
    CHECK(other_machine("", here) ==
          "costs are of another machine: processor not known, here Fast CPU, and 2 lines more");
}

TEST_CASE("local costs: what is measured anew leaves other rows as they were kept") {
    CostTable kept = refitted(nullptr, {run(2)});  // a kernel beside another, a collective, a message, the rest
    kept.notes = {"old"};
    kept.facts.emplace_back("program", "old");
    CostTable fresh = timed(1e-3, 1e-5);
    fresh.facts = {{"processors", "2"}, {"host", "b"}};
    const CostTable both = remeasured(kept, fresh);
    REQUIRE(both.kernels.size() == 3);
    CHECK(both.kernels.at(0).time.seconds == 4e-3);
    CHECK(both.kernels.at(1).time.seconds == 1e-3);
    REQUIRE(both.wires.size() == 2);
    CHECK(both.wires.at(0).time.seconds == 8e-3);
    CHECK(both.wires.at(1).time.seconds == 1e-5);  // the message was measured anew
    CHECK(total_of(both, "rest") == Approx(0.015));
    CHECK(both.facts == fresh.facts);
    CHECK(both.notes.empty());
    // Nothing measured takes nothing away.
    fresh.kernels.clear();
    fresh.wires.clear();
    CHECK(remeasured(both, fresh).kernels.size() == 3);
    CHECK(remeasured(both, fresh).wires.size() == 2);
}

TEST_CASE("local costs: rows that differ widely between repetitions are noted") {
    CostTable table = timed(1e-3, 1e-5);
    CHECK(spread_note(table) == "");
    table.kernels[1].time.spread = 1.75;
    table.wires[0].time.spread = 1;
    CHECK(spread_note(table) ==
          "2 of 3 rows vary widely between repetitions: their quartiles are a median or more apart (worst: gelu "
          "f32[16,64] -> f32[16,64], 1.8 medians); predictions from them are rough: run orrery calibrate again while "
          "nothing else runs");
    CHECK(spread_note(plain_costs(table)) == spread_note(table));
    table.kernels[1].time.spread = 0.5;
    table.wires[0].time.spread = 2;
    CHECK(spread_note(table).find("1 of 3 rows vary") == 0);
    CHECK(spread_note(table).find("worst: message over shm, 64 B, 2.0 medians") != std::string::npos);
    CHECK(spread_note(run(2)) == "");
}
