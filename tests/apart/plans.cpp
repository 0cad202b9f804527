// Plans on a device whose memory the host cannot touch, whose work runs late and whose steps are recorded.
#include <catch2/catch.hpp>

#include "apart/apart.h"
#include "plan_ranks.h"
#include "schedules.h"
#include "unit/ir_programs.h"
#include "unit/layout_models.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;

enum class Messages { queued, staged };

std::unique_ptr<Transport> transport_for(Messages messages) {
    Config config;
    auto threads = registry().transport("threads", {})(config);
    return messages == Messages::staged ? std::move(threads) : apart::make_transport(std::move(threads));
}

/// With the reference's kernels and one more key.
std::unique_ptr<Device> device_with(const char* key, const ConfigValue& value) {
    Config config;
    config.set("reference", {true, {}, false});
    config.set(key, value);
    return apart::make_device(config);
}

Running on_apart(int64_t steps, std::function<std::unique_ptr<Device>(int64_t rank)> device,
                 Messages messages = Messages::queued) {
    Running how;
    how.steps = steps;
    how.kind = "apart";
    how.device = std::move(device);
    how.transport = [=] { return transport_for(messages); };
    return how;
}

Ran run_apart(const Lowered& lowered, int64_t steps, Messages messages, bool capture = true) {
    const auto device = [=](int64_t) { return device_with("capture", {capture, {}, false}); };
    return run_steps(lowered, on_apart(steps, device, messages));
}

/// What lowering must know of the transport.
CompileOptions options_for(const Mesh& mesh, Messages messages) {
    CompileOptions options;
    for (const Axis& axis : mesh.axes())
        if (!axis.sequential && axis.size > 1) options.contracts[axis.name] = transport_for(messages)->contract();
    return options;
}

/// The same kernels in the same order: the same bits.
void same_apart(const Program& program, const Mesh& mesh, Messages messages, const Schedule* schedule = nullptr) {
    INFO("mesh " << mesh.text() << (messages == Messages::staged ? ", staged" : ", queued"));
    constexpr int64_t steps = 4;
    CompileOptions options = options_for(mesh, messages);
    options.schedule = schedule;
    const Lowered lowered = compile(program, mesh, options);
    const Ran expected = run_steps(lowered, steps);
    const Ran ran = run_apart(lowered, steps, messages);
    CHECK(difference(ran.values, expected.values, 0) == "");
    const bool alone = mesh.ranks() == 1;
    INFO(ran.why);
    CHECK(ran.captured == (alone || messages == Messages::queued ? mesh.ranks() : 0));
    if (ran.captured == 0) CHECK_THAT(ran.why, Catch::Matchers::Contains("its transport needs calls of the host"));
    CHECK(difference(run_apart(lowered, steps, messages, false).values, expected.values, 0) == "");
}

Mesh mesh_of(std::vector<Axis> axes, int64_t micro = 1) { return Mesh(std::move(axes)).with_microbatches(micro); }

}  // namespace

TEST_CASE("apart: one rank, recorded and not") {
    Model m = mlp(8, 4, 12, true, true);
    same_apart(m.program, mesh_of({}), Messages::queued);
    same_apart(m.program, mesh_of({}, 2), Messages::queued);
}

TEST_CASE("apart: kernels write over their workspaces in the plan, or beside it, and nothing else") {
    constexpr int64_t scratch = 1000;  // no multiple of an alignment
    const auto run = [](const Lowered& lowered) {
        return run_steps(lowered, on_apart(4, [](int64_t) { return device_with("scratch", {scratch, {}, false}); }));
    };
    Model m = block(4, 6, 2, 4, 7, true, true);
    CompileOptions options;
    options.workspace = [](const KernelSpec&) { return scratch; };
    for (const int64_t micro : {1, 2}) {
        const Lowered with = compile(m.program, mesh_of({}, micro), options),
                      beside = compile(m.program, mesh_of({}, micro));
        const Ran expected = run_steps(beside, 4);
        for (const Lowered* lowered : {&with, &beside}) {
            const Ran ran = run(*lowered);
            INFO(ran.why);
            CHECK(ran.captured == 1);
            CHECK(difference(ran.values, expected.values, 0) == "");
        }
        int64_t workspaces = 0;
        for (const Buffer& b : with.plan.classes[0].buffers)
            if (b.use == BufferUse::workspace) {
                ++workspaces;
                CHECK(b.offset % scratch_alignment == 0);
            }
        CHECK(workspaces > 10);
    }
}

TEST_CASE("apart: data and tensor parallelism, queued and staged") {
    for (const Messages messages : {Messages::queued, Messages::staged}) {
        Model m = mlp(8, 4, 12, true, true);
        m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
        m.program.bucket("dp", 200, {});
        same_apart(m.program, mesh_of({{"dp", 2}}), messages);
        same_apart(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2), messages);
        Model b = block(4, 4, 2, 4, 12, true, true);
        b.split_names({{"heads", "tp"}, {"mlp", "tp"}, {"vocab", "tp"}, {"batch", "dp"}});
        for (const char* name : {"residual1", "residual2"}) b.store(name, "tp", S(1));
        same_apart(b.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2), messages);
    }
}

TEST_CASE("apart: params, gradients and states that are split") {
    for (const Messages messages : {Messages::queued, Messages::staged}) {
        Model m = mlp(8, 4, 12, true, true);
        m.split_names({{"batch", "dp"}});
        for (ValueId p : m.program.params()) {
            const std::string name = m.program.value(p).name;
            m.store(name, "dp", S(0));
            m.use(name, "dp", Placement::replicated(), Keep::fragment);
            for (const char* state : {".m", ".v"}) m.store(name + state, "dp", S(0));
        }
        same_apart(m.program, mesh_of({{"dp", 2}}, 2), messages);
    }
}

TEST_CASE("apart: gathers ahead of their readers, reduce-scatters behind their makers") {
    for (const PrefetchDepth ahead : {PrefetchDepth{1, 0}, PrefetchDepth{3, 0}, PrefetchDepth{100, 0},
                                      PrefetchDepth{0, 300}, PrefetchDepth{0, 5000}})
        for (const Messages messages : {Messages::queued, Messages::staged}) {
            INFO(ahead.text());
            Model m = block(8, 4, 2, 4, 12, true, true);
            m.split_names({{"batch", "dp"}});
            for (ValueId p : m.program.params()) {
                const std::string name = m.program.value(p).name;
                const int dim = m.program.value(p).type.shape.size() > 1 ? 1 : 0;  // what is gathered is put in order
                m.store(name, "dp", S(dim));
                m.use(name, "dp", Placement::replicated(), Keep::fragment);
                m.program.store(m.program.grad_of(p), "dp", S(dim), {});
                for (const char* state : {".m", ".v"}) m.store(name + state, "dp", S(dim));
            }
            m.program.prefetch("dp", ahead, {});
            for (const int64_t micros : {1, 2, 4}) {
                same_apart(m.program, mesh_of({{"dp", 2}}, micros), messages);
                m.program.bucket("dp", 1000, {});
            }
        }
}

TEST_CASE("apart: gathers over two axes, ahead of each other as far as each is asked") {
    for (const auto& [outer, inner] : std::vector<std::pair<PrefetchDepth, PrefetchDepth>>{
             {{3, 0}, {1, 0}}, {{1, 0}, {3, 0}}, {{0, 0}, {2, 0}}, {{2, 0}, {0, 0}}, {{0, 500}, {2, 0}}}) {
        INFO(outer.text() << " and " << inner.text());
        Model m;
        ValueId h = m.input("x", {8, 8}, {"batch", "embed"});
        for (int layer = 0; layer < 5; ++layer) {
            const std::string scope = "layers." + std::to_string(layer);
            m.build.push_scope(scope);
            h = m.op("tanh", {m.op("matmul", {h, m.param(scope + ".w", {8, 8}, {"embed", "embed"})})});
            m.build.pop_scope();
        }
        m.train(m.op("sum", {m.op("square", {h})}, {{"dims", Shape{0, 1}}}), true);
        for (const char* axis : {"dp", "rp"}) {
            m.split_names({{"batch", axis}});
            for (ValueId p : m.program.params()) {
                const std::string name = m.program.value(p).name;
                m.store(name, axis, S(0));
                m.use(name, axis, Placement::replicated(), Keep::fragment);
                m.program.store(m.program.grad_of(p), axis, S(0), {});
                for (const char* state : {".m", ".v"}) m.store(name + state, axis, S(0));
            }
        }
        m.program.prefetch("dp", outer, {});
        m.program.prefetch("rp", inner, {});
        for (const int64_t micros : {1, 2})
            same_apart(m.program, mesh_of({{"dp", 2}, {"rp", 2}}, micros), Messages::queued);
    }
}

TEST_CASE("apart: terms of a tied gradient are scattered each, and trail") {
    for (const int64_t layers : {1, 2, 3, 100})
        for (const int64_t micros : {1, 2}) {
            Model m = block(8, 4, 2, 4, 12, true, true);
            m.split_names({{"batch", "dp"}});
            for (ValueId p : m.program.params()) {
                const std::string name = m.program.value(p).name;
                m.store(name, "dp", S(0));
                m.use(name, "dp", Placement::replicated(), Keep::fragment);
                m.program.store(m.program.grad_of(p), "dp", S(0), {});
                for (ValueId term : m.program.grad_terms(p)) m.program.store(term, "dp", S(0), {});
                for (const char* state : {".m", ".v"}) m.store(name + state, "dp", S(0));
            }
            m.program.prefetch("dp", {layers, 0}, {});
            same_apart(m.program, mesh_of({{"dp", 2}}, micros), Messages::queued);
        }
}

TEST_CASE("apart: where one rank cannot capture its step, none does") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}});
    const Mesh mesh = mesh_of({{"dp", 4}});
    const Lowered lowered = compile(m.program, mesh, options_for(mesh, Messages::queued));
    const Ran ran = run_steps(lowered, on_apart(4, [](int64_t rank) {
                                  return device_with("capture", {rank != 2, {}, false});
                              }));
    CHECK(ran.captured == 0);
    CHECK(ran.why == "rank 2 could not: device.apart.capture is false");
    CHECK(difference(ran.values, run_steps(lowered, 4).values, 0) == "");
}

TEST_CASE("apart: a fault in a captured step is not said to be of the last instruction that was walked") {
    Model m = mlp(8, 4, 12, true, true);
    const Lowered lowered = compile(m.program, mesh_of({}));
    const auto device = [](int64_t) { return device_with("replay_fails", {true, {}, false}); };
    CHECK_NOTHROW(run_steps(lowered, on_apart(1, device)));
    CHECK_THROWS_WITH(run_steps(lowered, on_apart(2, device)),
                      Catch::Matchers::Contains("device apart: a kernel touched what is not its own\n  in the captured "
                                                "step (device.apart.capture = false names the kernel)"));
}

TEST_CASE("apart: a pipeline's sends and receives, in groups") {
    const Schedule interleaved = hand_interleaved(), vee = hand_vee();
    for (const Messages messages : {Messages::queued, Messages::staged})
        for (const Schedule& schedule : {hand_gpipe(2, 4), hand_1f1b(2, 4), interleaved, vee}) {
            const int chunks = schedule.name == "interleaved" || schedule.name == "vee" ? 2 : 1;
            Model m;
            const ValueId x = m.input("x", {8, 6}, {"batch", "embed"});
            ValueId h = x;
            for (int layer = 0; layer < 2 * chunks; ++layer) {
                const std::string scope = "layers." + std::to_string(layer);
                m.build.push_scope(scope);
                const ValueId up = m.param(scope + ".up", {6, 12}, {"embed", "mlp"});
                const ValueId down = m.param(scope + ".down", {12, 6}, {"mlp", "embed"});
                h = m.op("add", {h, m.op("matmul", {m.op("gelu", {m.op("matmul", {h, up})}), down})});
                m.build.pop_scope();
            }
            m.train(m.op("sum", {m.op("square", {h})}, {{"dims", Shape{0, 1}}}), true);
            for (int layer = 0; layer < 2 * chunks; ++layer)
                m.program.stage("layers." + std::to_string(layer), layer, {"pipeline", "", 1, 0});
            m.program.pipeline({"pp", schedule.name, chunks, {}});
            same_apart(m.program, mesh_of({{"pp", 2}}, 4), messages, &schedule);
        }
}
