// A plan for a machine that nobody here has.
#include <catch2/catch.hpp>

#include <chrono>

#include "compile/pipeline.h"
#include "ir_programs.h"
#include "layout_models.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "orrery/strategy.h"
#include "plan/check/check.h"

using namespace orrery;
using namespace orrery::test;

TEST_CASE("a 405-billion-parameter decoder on 16,384 ranks is lowered and checked in seconds", "[slow]") {
    Model m;
    m.program = decoder({126, 2048, 8192, 16384, 128, 8, 53248, 128256});
    const ValueId loss = *m.program.result("loss_sum");
    std::erase_if(m.program.results, [](const Result& r) { return r.name == "loss_sum"; });
    m.train(loss, true);
    m.split_names({{"batch", "dp"}, {"heads", "tp"}, {"kv_heads", "tp"}, {"mlp", "tp"}});
    m.program.bucket("dp", int64_t{256} << 20, {});
    // The embedding and the head count as layers: 3, 4, ..., 4, 3 in 32 stages.
    const std::vector<Layer> row = layers(m.program);
    REQUIRE(row.size() == 128);
    for (int layer = 0; layer < 126; ++layer)
        m.program.stage(row[static_cast<size_t>(layer) + 1].scope, (layer + 1) / 4, {});
    m.program.pipeline({"pp", "interleaved", 2, {}});
    m.program.microbatches(16, {});
    const Mesh mesh = Mesh({{"pp", 16}, {"dp", 128}, {"tp", 8}}).with_microbatches(16);
    FakeHost host;
    const Schedule schedule = load_schedule(m.program.pipeline(), 16, 16, {}, host);
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    const auto start = std::chrono::steady_clock::now();
    Persistent persistent;
    const Plan plan = plan_of(distribute(m.program, mesh), mesh, persistent, options);
    check(plan, options.contracts);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    size_t instructions = 0;
    for (const RankClass& c : plan.classes) instructions += c.stream.size();
    WARN(instructions << " instructions of 16 classes: propagated, lowered and checked in " << seconds << " s");
    CHECK(plan.classes.size() == 16);
    CHECK(plan.classes[0].ranks.size() == 1024);
    CHECK_NOFAIL(seconds < 10);
}
