// Plans on meshes of threads give the one-rank result.
#include <catch2/catch.hpp>

#include <random>

#include "compile/passes/fuse.h"
#include "ir/op.h"
#include "ir_programs.h"
#include "layout_models.h"
#include "plan/print.h"
#include "plan/summary.h"
#include "plan_ranks.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;
const Placement R = Placement::replicated();

Mesh mesh_of(std::vector<Axis> axes, int64_t micro = 1) { return Mesh(std::move(axes)).with_microbatches(micro); }

/// Two steps on the mesh leave the params, states and results that two steps on one rank leave.
void same_as_one_rank(const Program& program, const Mesh& mesh, double tolerance = 2e-5) {
    INFO("mesh " << mesh.text());
    Program alone = program;
    const Ran expected = run_steps(compile(alone, Mesh()), 2);
    const Lowered lowered = compile(program, mesh);
    INFO(print(lowered.plan));
    CHECK(difference(run_steps(lowered, 2).values, expected.values, tolerance) == "");
}

}  // namespace

TEST_CASE("a perceptron with AdamW learns on one rank") {
    Model m = mlp(8, 4, 12, true, true);
    const Lowered lowered = compile(m.program, Mesh());
    const Ran first = run_steps(lowered, 1), later = run_steps(lowered, 20);
    CHECK(std::isfinite(later.values.at("result loss_sum")[0]));
    CHECK(later.values.at("result loss_sum")[0] < first.values.at("result loss_sum")[0]);
}

TEST_CASE("micro-batches add up to the batch") {
    for (bool clip : {false, true}) {
        Model m = mlp(8, 4, 12, true, clip);
        same_as_one_rank(m.program, mesh_of({}, 2));
        same_as_one_rank(m.program, mesh_of({}, 4));
    }
}

TEST_CASE("data and tensor parallelism with micro-batches equal one rank") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    same_as_one_rank(m.program, mesh_of({{"dp", 2}}));
    same_as_one_rank(m.program, mesh_of({{"tp", 3}}));
    same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}));
    same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
}

TEST_CASE("dropout draws by global index, whatever the mesh and the micro-batches") {
    Model m;
    const ValueId x = m.input("x", {8, 6}, {"batch", "embed"});
    const ValueId seed = m.input("seed", {}, {}, DType::u32);
    const ValueId noise = m.op(
        "random", {seed}, {{"shape", Shape{8, 12}}, {"kind", std::string("uniform")}, {"scale", 0.1}, {"stream", 5}},
        {{"batch", "mlp"}});
    ValueId h = m.op("add", {m.op("matmul", {x, m.param("up", {6, 12}, {"embed", "mlp"})}), noise});
    h = m.op("dropout", {h, seed}, {{"p", 0.3}, {"stream", 3}});
    const ValueId y = m.op("matmul", {h, m.param("down", {12, 6}, {"mlp", "embed"})});
    m.train(m.op("sum", {m.op("square", {y})}, {{"dims", Shape{0, 1}}}), true);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}));
    same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    same_as_one_rank(m.program, mesh_of({{"tp", 3}}, 4));
}

TEST_CASE("dropout by places is split with them") {
    Model m;
    const ValueId x = m.input("x", {8, 4, 6}, {"batch", "seq", "embed"});
    const ValueId seed = m.input("seed", {}, {}, DType::u32);
    const ValueId places = m.input("places", {8, 4}, {"batch", "seq"}, DType::i32);
    const ValueId noise = m.op("random", {seed, places}, {{"shape", Shape{8, 4, 12}}, {"scale", 0.1}, {"stream", 5}},
                               {{"batch", "seq", "mlp"}});
    ValueId h = m.op("add", {m.op("matmul", {x, m.param("up", {6, 12}, {"embed", "mlp"})}), noise});
    h = m.op("dropout", {h, seed, places}, {{"p", 0.3}, {"stream", 3}});
    const ValueId y = m.op("matmul", {h, m.param("down", {12, 6}, {"mlp", "embed"})});
    m.train(m.op("sum", {m.op("square", {y})}, {{"dims", Shape{0, 1, 2}}}), true);
    m.split_names({{"batch", "dp"}, {"seq", "cp"}, {"mlp", "tp"}});
    same_as_one_rank(m.program, mesh_of({{"cp", 4}}));
    same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"cp", 2}, {"tp", 2}}));
    same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"cp", 2}}, 2));
}

TEST_CASE("communicators send what the summary says") {
    Model m = block(4, 4, 2, 4, 12, true, true);
    m.split_names({{"heads", "tp"}, {"mlp", "tp"}, {"batch", "dp"}});
    for (const char* name : {"residual1", "residual2"}) m.store(name, "tp", S(1));
    m.program.bucket("dp", 1 << 20, {});
    const Lowered lowered = compile(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    const Ran ran = run_steps(lowered, 1);
    std::map<AxisId, std::pair<int64_t, int64_t>> expected;
    const PlanSummary plan_summary = summary(lowered.plan);
    for (const ClassSummary::Traffic& t : plan_summary.classes[0].traffic) {
        expected[t.axis].first += t.count;
        expected[t.axis].second += t.bytes_sent;
    }
    CHECK(expected.size() == 2);
    for (const auto& [axis, count_and_bytes] : expected)
        for (const auto& rank : ran.traffic) {
            CHECK(rank[static_cast<size_t>(axis)].collectives == count_and_bytes.first);
            CHECK(rank[static_cast<size_t>(axis)].bytes_sent == count_and_bytes.second);
        }
}

TEST_CASE("time is charged to kernels, collectives and waiting") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}});
    const Lowered lowered = compile(m.program, mesh_of({{"dp", 2}}));
    std::map<std::string, Executor::Time> times;
    const Ran ran = run_steps(lowered, 3);
    for (const Executor::Time& t : ran.times[0]) times[t.name] = t;
    CHECK(times.at("adamw").count == 3 * 4);
    CHECK(times.at("adamw").kind == Executor::Time::Kind::compute);
    CHECK(times.at("all_reduce dp").count == 3 * 5);
    CHECK(times.at("all_reduce dp").seconds > 0);
    CHECK(times.count("waiting") == 1);
}

TEST_CASE("a kernel that the device lacks is named with its script line") {
    Model m;
    const ValueId x = m.input("x", {8, 6}, {"batch", "embed"}, DType::f64);
    m.build.result("y", m.op("neg", {x}), {});
    const Lowered lowered = compile(m.program, Mesh());
    CHECK_THROWS_WITH(run_steps(lowered, 1, false),
                      Catch::Matchers::Contains("instruction 0: neg") && Catch::Matchers::Contains("model.lua:2"));
}

TEST_CASE("a mesh without a communicator, and a value that is not kept, are errors") {
    Model m = mlp(8, 4, 12, true);
    m.split_names({{"batch", "dp"}});
    const Lowered lowered = compile(m.program, mesh_of({{"dp", 2}}));
    const auto device = cpu_device();
    CHECK_THROWS_WITH(Executor(lowered.plan, 0, *device, {}, nullptr, nullptr),
                      Catch::Matchers::Contains("there is no communicator for axis dp"));
    CHECK_THROWS_WITH(lowered.plan.class_of(2), Catch::Matchers::Contains("the plan has no rank 2"));
    const Lowered alone = compile(m.program, Mesh());
    Executor executor(alone.plan, 0, *device, {}, nullptr, nullptr);
    CHECK_THROWS_WITH(executor.tensor(alone.plan.program.ops[0].outputs[0]),
                      Catch::Matchers::Contains("only inputs, params, states and results"));
}

TEST_CASE("a plan that was made for prices alone does not run") {
    Model m = mlp(8, 4, 12, true);
    Lowered lowered = compile(m.program, Mesh());
    lowered.plan.fingerprint = for_prices_alone;
    const auto device = cpu_device();
    CHECK_THROWS_WITH(Executor(lowered.plan, 0, *device, {}, nullptr, nullptr),
                      Catch::Matchers::Contains("for cost estimates only"));
}

TEST_CASE("joined all-reduces give what single ones give") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}});
    m.program.bucket("dp", 200, {});
    same_as_one_rank(m.program, mesh_of({{"dp", 2}}));
    same_as_one_rank(m.program, mesh_of({{"dp", 2}}, 2));
}

TEST_CASE("a transformer block, tied and untied, on meshes") {
    for (bool tied : {false, true}) {
        Model m = block(4, 6, 2, 4, 7, tied, true);
        m.split_names({{"batch", "dp"}, {"heads", "tp"}, {"mlp", "tp"}});
        m.program.bucket("dp", 1 << 20, {});
        same_as_one_rank(m.program, mesh_of({{"dp", 2}}, 2));
        same_as_one_rank(m.program, mesh_of({{"tp", 2}}));
        same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    }
}

TEST_CASE("sequence parallelism and split vocabularies equal one rank") {
    for (bool tied : {false, true}) {
        Model m = block(4, 4, 2, 4, 12, tied, true);
        m.split_names({{"heads", "tp"}, {"mlp", "tp"}, {"vocab", "tp"}, {"batch", "dp"}});
        same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}));
        for (const char* name : {"residual1", "residual2"}) m.store(name, "tp", S(1));
        same_as_one_rank(m.program, mesh_of({{"tp", 2}}));
        same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    }
}

TEST_CASE("the batch split by two axes, in both orders") {
    Model m = mlp(8, 4, 12, true);
    m.split_names({{"batch", "dp"}, {"batch", "tp"}});
    same_as_one_rank(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    Model n = mlp(8, 4, 12, true);
    n.split_names({{"batch", "tp"}, {"batch", "dp"}});
    same_as_one_rank(n.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
}

TEST_CASE("split states, split gradients and split params equal one rank") {
    for (int dim : {0, 1}) {
        for (int64_t micro : {1, 2}) {
            Model states = mlp(8, 4, 12, dim == 0, true);
            states.split_names({{"batch", "dp"}});
            for (ValueId p : states.program.params())
                for (const char* state : {".m", ".v"}) states.store(states.program.value(p).name + state, "dp", S(dim));
            same_as_one_rank(states.program, mesh_of({{"dp", 2}}, micro));

            Model grads = mlp(8, 4, 12, dim == 0, true);
            grads.split_names({{"batch", "dp"}});
            for (ValueId p : grads.program.params()) {
                const std::string name = grads.program.value(p).name;
                grads.program.store(grads.program.grad_of(p), "dp", S(dim), {"test", "strategy.lua", 3, 0});
                for (const char* state : {".m", ".v"}) grads.store(name + state, "dp", S(dim));
            }
            same_as_one_rank(grads.program, mesh_of({{"dp", 2}}, micro));

            for (const Keep keep : {Keep::step, Keep::fragment}) {
                Model params = mlp(8, 4, 12, dim == 0, true);
                params.split_names({{"batch", "dp"}});
                for (ValueId p : params.program.params()) {
                    params.store(params.program.value(p).name, "dp", S(dim));
                    params.use(params.program.value(p).name, "dp", R, keep);
                }
                same_as_one_rank(params.program, mesh_of({{"dp", 2}}, micro));
            }
        }
    }
}

TEST_CASE("marks, meshes, micro-batches, buckets and schedules drawn at random equal one rank", "[slow]") {
    int ran = 0;
    for (uint32_t seed = 0; seed < 60; ++seed) {
        std::mt19937 random(seed);
        const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
        Model m = below(2) ? block(8, 4, 2, 4, 12, below(2) == 0, below(2) == 0)
                           : mlp(8, 4, 12, below(2) == 0, below(2) == 0);
        m.split_names({{"batch", "dp"}});
        if (below(2)) m.split_names({{"heads", "tp"}, {"mlp", "tp"}});
        if (below(3) == 0) m.split_names({{"vocab", "tp"}});
        if (below(2)) m.program.bucket("dp", 64 << below(8), {});
        const int zero = below(4);
        for (ValueId p : m.program.params()) {
            const std::string name = m.program.value(p).name;
            const int dim = below(static_cast<int>(m.program.value(p).type.shape.size()));
            if (zero == 0 || below(4) == 0) continue;
            if (zero == 3) {
                m.store(name, "dp", S(dim));
                m.use(name, "dp", R, below(2) ? Keep::step : Keep::fragment);
            }
            if (zero == 2) m.program.store(m.program.grad_of(p), "dp", S(dim), {"test", "strategy.lua", 3, 0});
            for (const char* state : {".m", ".v"}) m.store(name + state, "dp", S(dim));
        }
        CompileOptions options;
        options.contracts["dp"].in_place = below(2) == 0;
        options.contracts["tp"].in_place = below(2) == 0;
        const int64_t micro = 1 << below(3);
        const Schedule late{
            "late weights", {RankSchedule::parse(micro == 4 ? "F0 F1 B0 F2 B1 W0 F3 B2 B3 W1 W2 W3" : "")}, {}};
        if (micro == 4) options.schedule = &late;
        const Mesh mesh = mesh_of({{"dp", 2}, {"tp", 2}}, micro);
        INFO("seed " << seed << ", mesh " << mesh.text() << ", zero " << zero);
        Lowered lowered;
        try {
            lowered.plan.program = distribute(m.program, mesh);
        } catch (const Error&) {
            continue;  // marks that do not go together are propagation's to refuse
        }
        lowered.plan = plan_of(lowered.plan.program, mesh, lowered.persistent, options);
        check(lowered.plan, options.contracts);
        CHECK(difference(run_steps(lowered, 2).values, run_steps(compile(m.program, Mesh()), 2).values, 2e-5) == "");
        ++ran;
    }
    CHECK(ran >= 40);
}

TEST_CASE("random programs give the same whether every value is kept or only the last ones") {
    // Keeping every value leaves nothing to write in place, to alias away or to add up in kernels.
    int compared = 0;
    for (uint32_t seed = 0; seed < 200; ++seed) {
        INFO("seed " << seed);
        Program all = random_program(seed);
        const bool alone =
            std::none_of(all.ops.begin(), all.ops.end(), [](const Op& op) { return op_def(op.kind).collective; });
        if (!alone) continue;
        all.results.clear();
        all.updates.clear();
        for (Op& op : all.ops) op.stage = none;
        Program few = all;
        std::vector<char> read(all.values.size(), 0);
        for (const Op& op : all.ops)
            for (ValueId input : op.inputs) read[static_cast<size_t>(input)] = 1;
        for (const Op& op : all.ops)
            for (ValueId output : op.outputs) {
                all.results.push_back({std::to_string(output), output});
                if (!read[static_cast<size_t>(output)]) few.results.push_back({std::to_string(output), output});
            }
        const auto run = [&](const Program& program) {
            Lowered lowered;
            lowered.plan = lower(fuse(program), Mesh(), lowered.persistent);  // its gradients are of any shape
            check(lowered.plan, {});
            return run_steps(lowered, 1);
        };
        const Contents kept = run(all).values;
        for (const auto& [name, values] : run(few).values) {
            INFO(name);
            const std::vector<float>& expected = kept.at(name);
            REQUIRE(values.size() == expected.size());
            for (size_t i = 0; i < values.size(); ++i) {
                if (std::isnan(values[i]) && std::isnan(expected[i])) continue;
                if (values[i] == expected[i]) continue;
                REQUIRE(std::abs(values[i] - expected[i]) <= 1e-5 * std::abs(expected[i]) + 1e-6);
            }
            compared += name.rfind("result", 0) == 0;
        }
    }
    CHECK(compared > 200);
}
