#include <catch2/catch.hpp>

#include "orrery/error.h"
#include "sim/cluster/measured_wires.h"

using namespace orrery;

namespace {

constexpr const char* rows = R"([
{"transport": "shm", "op": "all_reduce", "ranks": 2, "bytes": 1000, "seconds": 10e-6, "processor_seconds": 16e-6},
{"transport": "shm", "op": "all_reduce", "ranks": 2, "bytes": 100000, "seconds": 40e-6, "processor_seconds": 64e-6},
{"transport": "shm", "op": "all_reduce", "ranks": 2, "bytes": 200000, "seconds": 70e-6, "processor_seconds": 112e-6},
{"transport": "gloo", "op": "send", "ranks": 2, "bytes": 1000, "seconds": 30e-6, "processor_seconds": 20e-6}])";

MeasuredTable table() { return MeasuredTable::parse(rows, "t.json"); }

double alone_s(const Demand& demand, const MeasuredWires& wires) {
    double most = 0;
    for (const Demand::Load& load : demand.loads) most = std::max(most, load.amount / wires.capacity(load.resource));
    return demand.fixed_s + most;
}

}  // namespace

TEST_CASE("measured wires: what was timed comes out, and what lies between") {
    const MeasuredTable times = table();
    CHECK(times.times("shm", Opcode::all_reduce, 2, 100000).seconds == 40e-6);
    CHECK(times.times("shm", Opcode::all_reduce, 2, 10).seconds == 10e-6);
    CHECK(times.times("shm", Opcode::all_reduce, 2, 10000).seconds == Approx(20e-6));  // half of the way in logarithms
    CHECK(times.times("shm", Opcode::all_reduce, 2, 300000).seconds == Approx(100e-6));
    CHECK(times.times("gloo", Opcode::receive, 2, 1000).seconds == 30e-6);
}

TEST_CASE("measured wires: other numbers of ranks by steps and bytes") {
    // Four ranks: 6 steps instead of 2, 1.5 S instead of 1 S, twice as many members at work.
    const MeasuredTable::Times four = table().times("shm", Opcode::all_reduce, 4, 100000);
    CHECK(four.seconds == Approx(10e-6 * 3 + 30e-6 * 1.5));
    CHECK(four.processor_seconds == Approx((16e-6 * 3 + 48e-6 * 1.5) * 2));
}

TEST_CASE("measured wires: processors are shared") {
    MeasuredWires wires(table(), {.processors = 2}, {{none, "shm"}});
    const Demand one = wires.collective(Opcode::all_reduce, 0, 100000, {0, 1}, {0, 1});
    CHECK(alone_s(one, wires) == Approx(40e-6));
    const Demand two = wires.collective(Opcode::all_reduce, 0, 100000, {0, 1}, {0, 1, 2, 3});
    CHECK(alone_s(two, wires) == Approx(40e-6 + 64e-6 / 2));
    CHECK(two.how == "shm");
}

TEST_CASE("measured wires: shaped links") {
    MeasuredWires wires(table(), {.processors = 2, .link_bytes_s = 1e6, .link_latency_s = 1e-3}, {{none, "shm"}});
    const Demand one = wires.collective(Opcode::all_reduce, 0, 100000, {0, 1}, {0, 1});
    CHECK(alone_s(one, wires) ==
          Approx(0.1 + 2e-3 + 8e-6));  // S over the link, two steps, what the processors do not do
    CHECK(one.loads.size() == 5);
}

TEST_CASE("measured wires: what is missing is named") {
    CHECK_THROWS_WITH(table().times("ucx", Opcode::all_reduce, 2, 10),
                      Catch::Contains("all_reduce by ucx was not measured") && Catch::Contains("all_reduce by shm"));
    CHECK_THROWS_WITH(MeasuredTable::parse(R"([{"transport": "shm"}])", "t.json"),
                      Catch::Contains("t.json") && Catch::Contains("measurement 1") && Catch::Contains("\"op\""));
    CHECK_THROWS_WITH(MeasuredTable({{"shm", "send", 1, 10, 1, 1}}), Catch::Contains("at least 2 ranks"));
}
