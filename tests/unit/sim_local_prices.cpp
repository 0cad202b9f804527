// Prices of the machine at hand: rows, what lies between them, and processors that ranks share.
#include "sim/local/local_prices.h"

#include <catch2/catch.hpp>

#include "orrery/error.h"
#include "sim/local/compare.h"
#include "sim/local/local_costs.h"
#include "sim/simulate.h"

using namespace orrery;

namespace {

KernelSpec product(int64_t m, DType type = DType::f32) {
    return {"matmul", {}, {{type, {m, 64}}, {type, {64, 64}}}, {{type, {m, 64}}}};
}
KernelSpec gelu(int64_t rows) { return {"gelu", {}, {{DType::f32, {rows, 64}}}, {{DType::f32, {rows, 64}}}}; }

CostTable table() {
    CostTable t;
    t.made_by = "calibrate";
    t.device = "cpu";
    t.facts = {{"processors", "2"}};
    t.kernels = {
        {product(64), 1, {1e-3}}, {product(256), 1, {4e-3}}, {product(256), 1, {6e-3}, 1}, {gelu(1024), 1, {1e-4}}};
    t.wires = {{"shm", "all_reduce", 2, 1024, {1e-3}, 1e-3}, {"shm", "all_reduce", 2, 4096, {2e-3}, 2e-3}};
    return t;
}

/// `ranks` that each run the kernel and then reduce 1 KiB.
Plan plan_of(int ranks, const KernelSpec& spec) {
    Plan plan;
    plan.mesh = Mesh({{"dp", ranks}});
    RankClass c;
    for (int64_t rank = 0; rank < ranks; ++rank) c.ranks.push_back(rank);
    c.kernels = {spec};
    Instruction launch, reduce;
    launch.kernel = 0;
    reduce.opcode = Opcode::all_reduce;
    reduce.queue = 1;
    reduce.axis = 0;
    Operand operand;
    operand.type = {DType::u8, {1024}};
    reduce.operands = {operand, operand};
    reduce.waits = {0};
    c.stream = {launch, reduce};
    plan.classes = {c};
    return plan;
}

Simulated played(const Plan& plan, const CostTable& costs, double processors) {
    SharedHost host;
    host.processors = processors;
    LocalPrices prices(costs, plan, host, {{"dp", "shm"}});
    SimulateOptions options;
    options.each_rank = options.every_launch = true;
    return simulate(plan, {{"dp", TransportContract{}}}, prices, options);
}

}  // namespace

TEST_CASE("local kernels: rows, what lies between them, and rates") {
    LocalKernels kernels(table(), 1, 2, 2);
    CHECK(kernels.price(product(64)).alone_s == 1e-3);
    CHECK(kernels.price(product(64)).from == LocalPrice::From::measured);
    CHECK(kernels.price(product(128)).alone_s == Approx(2e-3));
    CHECK(kernels.price(product(128)).from == LocalPrice::From::scaled);
    CHECK(kernels.price(product(1024)).alone_s == Approx(16e-3));
    CHECK(kernels.price(product(32)).alone_s == Approx(0.5e-3));
    CHECK(kernels.price(product(64, DType::bf16)).alone_s == Approx(1e-3));  // no row of its type
    CHECK(kernels.knows(product(1024)));
    CHECK_FALSE(kernels.knows(product(64, DType::bf16)));
    // relu has no row: as many bytes as gelu's.
    KernelSpec relu = gelu(2048);
    relu.op = "relu";
    CHECK(kernels.price(relu).alone_s == Approx(2e-4));
    CHECK(kernels.price(relu).from == LocalPrice::From::kind);
    CHECK_FALSE(kernels.knows(relu));
    // Attention has neither rows nor kin: 4 FLOP a score and element of a head, at the products' rate.
    const TensorType x{DType::f32, {1, 64, 2, 32}};
    const KernelSpec attention{"attention", {}, {x, x, x}, {x}};
    CHECK(kernels.price(attention).alone_s == Approx(4.0 * 64 * 64 * 2 * 32 / (2.0 * 64 * 64 * 64 / 1e-3)));
    CHECK(kernels.price(attention).from == LocalPrice::From::rates);
    CHECK(kernels.sources() ==
          "1 of 7 kernels as measured; 4 scaled by their work from other shapes (matmul 4); 1 from other ops of their "
          "kind, as no row has the op (relu); 1 by the machine's rates, as no row is of their kind (attention)");
    CHECK(kernels.copy_s(1024 * 64 * 4) == Approx(1e-4));
}

TEST_CASE("local kernels: copies go by the median of what moves bytes, and are told where nothing does") {
    CostTable costs = table();
    costs.kernels = {{gelu(8), 1, {1e-6}}, {gelu(16), 1, {1e-6}}, {gelu(32), 1, {1e-6}}};  // all below 64 KiB
    LocalKernels small(costs, 1, 2, 2);
    CHECK(small.copy_s(16 * 64 * 4) == Approx(1e-6));
    CHECK(small.sources().find("copies") == std::string::npos);
    costs.kernels.push_back({gelu(1024), 1, {4e-6}});  // one that is not counts before them
    CHECK(LocalKernels(costs, 1, 2, 2).copy_s(1024 * 64 * 4) == Approx(4e-6));
    costs.kernels = {{product(64), 1, {1e-3}}};
    LocalKernels none_moves(costs, 1, 2, 2);
    CHECK(none_moves.sources().find("copies") == std::string::npos);  // nobody has asked
    CHECK(none_moves.copy_s(0) == 0);
    CHECK(none_moves.sources().find("copies") == std::string::npos);
    CHECK(none_moves.copy_s(4096) == 0);
    CHECK_THAT(none_moves.sources(),
               Catch::Contains("copies in memory as if they took no time, as no row moves bytes"));
}

TEST_CASE("local kernels: of equal work the row with the nearest shape counts") {
    const auto of = [](int64_t m, int64_t k, int64_t n) {
        return KernelSpec{"matmul", {}, {{DType::f32, {m, k}}, {DType::f32, {k, n}}}, {{DType::f32, {m, n}}}};
    };
    CostTable costs = table();
    costs.kernels = {{of(1024, 16, 1024), 1, {9e-3}}, {of(256, 256, 256), 1, {1e-3}}, {of(1024, 1024, 16), 1, {5e-3}}};
    LocalKernels kernels(costs, 1, 1, 2);
    CHECK(kernels.price(of(512, 256, 256)).alone_s == Approx(2e-3));
    CHECK(kernels.price(of(512, 16, 1024)).alone_s == Approx(4.5e-3));
    CHECK(kernels.price(of(512, 1024, 16)).alone_s == Approx(2.5e-3));
}

TEST_CASE("local kernels: what other ranks cost is measured by kind of work") {
    LocalKernels kernels(table(), 1, 2, 2);
    CHECK(kernels.price(product(64)).crowding == Approx(1.5));  // of the one product that was timed both ways
    CHECK(kernels.price(gelu(1024)).crowding == 1);
    CHECK(kernels.crowding_text() == "where all processors do the same it takes so many times as long: products 1.50");
    CHECK(kernels.price(product(256)).alone_s == Approx(4e-3));
    CostTable far = table();
    far.kernels[2].time.seconds = 9e-3;
    far.kernels.push_back({product(512), 1, {8e-3}});
    far.kernels.push_back({product(512), 1, {8e-3}, 1});
    far.kernels.push_back({product(1024), 1, {1e-2}});
    far.kernels.push_back({product(1024), 1, {15e-3}, 1});                  // ratios 2.25, 1 and 1.5
    CHECK(LocalKernels(far, 1, 1, 2).price(product(512)).alone_s == 8e-3);  // nobody beside it
    CHECK(LocalKernels(far, 1, 2, 2).price(product(512)).alone_s * 1.5 == Approx(8e-3));
    LocalKernels threaded(table(), 2, 1, 2);  // rows are of one thread
    CHECK(threaded.price(product(64)).alone_s == Approx(0.5e-3));
    CHECK(threaded.price(product(64)).from == LocalPrice::From::scaled);
    CostTable few = table();
    few.kernels = {{gelu(8), 1, {1e-6}}};
    CHECK_THROWS_WITH(LocalKernels(few, 1, 1, 2).price(product(64)),
                      Catch::Contains("no row of matmul") && Catch::Contains("orrery calibrate"));
    few.kernels.clear();
    CHECK_THROWS_WITH(LocalKernels(few, 1, 1, 2), Catch::Contains("no kernels"));
}

TEST_CASE("local prices: ranks share the processors") {
    const double reduce_s = 1e-3;
    CHECK(played(plan_of(2, gelu(1024)), table(), 2).step_s == Approx(1e-4 + reduce_s));
    CHECK(played(plan_of(2, product(64)), table(), 2).step_s == Approx(1.5e-3 + reduce_s));
    CHECK(played(plan_of(2, product(64)), table(), 1).step_s == Approx(2e-3 + reduce_s));
    // Four take turns on two; six steps of a ring in place of two, 1.5 times the bytes.
    const Simulated four = played(plan_of(4, gelu(1024)), table(), 2);
    REQUIRE(four.actors.size() == 4);
    for (const ActorTime& actor : four.actors) CHECK(actor.computing == Approx(2e-4));
    const Simulated eight = played(plan_of(8, gelu(1024)), table(), 2);
    CHECK(eight.actors.front().computing == Approx(4e-4));
    CHECK(eight.step_s > four.step_s);
    CHECK(played(plan_of(4, gelu(1024)), table(), 4).actors.front().computing == Approx(1e-4));
}

TEST_CASE("local prices: operations that were not measured come of others by their bytes") {
    Derived derived;
    const auto rows = wire_rows(table(), 2, derived);
    CHECK(rows.size() == 10);
    CHECK(derived.size() == 4);
    const MeasuredTable times(rows);
    CHECK(times.times("shm", Opcode::reduce_scatter, 2, 4096).seconds == Approx(1e-3));  // half of the bytes
    CHECK(times.times("shm", Opcode::send, 2, 4096).seconds == Approx(2e-3));
    SharedHost host;
    host.processors = 2;
    const Plan plan = plan_of(2, gelu(1024));
    CHECK_THROWS_WITH(LocalPrices(table(), plan, host, {{"dp", "gloo"}}),
                      Catch::Contains("transport gloo of axis dp was not measured") && Catch::Contains("shm") &&
                          Catch::Contains("--table gloo.json"));
}

TEST_CASE("local prices: more ranks than processors are timed by two where two were") {
    CostTable costs = table();
    costs.wires = {{"shm", "all_reduce", 2, 4096, {1e-3}}, {"shm", "all_reduce", 4, 4096, {9e-3}}};
    Derived derived;
    const auto seconds = [&] {
        return MeasuredTable(wire_rows(costs, 2, derived)).times("shm", Opcode::all_reduce, 4, 4096);
    };
    CHECK(seconds().seconds < 4e-3);  // the turns of four on two processors are played, not measured
    costs.facts = {{"processors", "4"}};
    CHECK(seconds().seconds == 9e-3);
    costs.facts = {};
    costs.wires.erase(costs.wires.begin());
    CHECK(seconds().seconds == 9e-3);
}

TEST_CASE("compare: parts of a step as they were played and measured") {
    const Plan plan = plan_of(2, gelu(1024));
    CostTable run = table();
    run.made_by = "run";
    run.facts = {{"ranks", "2"}, {"steps", "10"}};
    run.kernels = {{gelu(1024), 1, {2e-4, {}, {}, 20}, 1}};
    run.wires = {{"shm", "all_reduce", 2, 1024, {5e-4, {}, {}, 20}, {}, "dp", 1e-3}};
    run.totals = {{"step", 2e-3}, {"compute", 2e-4}, {"communication", 1e-3}, {"waiting", 0}};
    const Comparison made = compare(plan, played(plan, table(), 2), 1e-4, run);
    REQUIRE(made.parts.size() == 3);
    CHECK(made.parts[0].what == "gelu");
    CHECK(made.parts[0].predicted_s == Approx(1e-4));
    CHECK(made.parts[0].measured_s == Approx(2e-4));
    CHECK(off(made.parts[0]) == Approx(-0.5));
    CHECK(made.parts[1].what == "dp: all_reduce");
    CHECK(made.parts[1].predicted_s == Approx(1e-3));
    CHECK(made.parts[1].measured_s == Approx(1e-3));
    CHECK(made.parts[2].measured_s == Approx(8e-4));
    CHECK(made.step.predicted_s == Approx(1.2e-3));
    const std::string text = text_of(made, 0);
    CHECK_THAT(text, Catch::Contains("other kernels") && Catch::Contains("dp: all_reduce") &&
                         Catch::Contains("-40.0 %") && !Catch::Contains("gelu"));
    run.facts = {{"ranks", "2"}};
    CHECK_THROWS_WITH(compare(plan, played(plan, table(), 2), 0, run), Catch::Contains("no measured steps"));
}
