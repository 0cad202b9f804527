// Plans on a device whose memory the host cannot touch, whose work runs late and whose steps are recorded.
#include <catch2/catch.hpp>

#include <cmath>

#include "apart/apart.h"
#include "plan_ranks.h"
#include "run/staged_communicator.h"
#include "unit/ir_programs.h"
#include "unit/layout_models.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;

enum class Messages { queued, staged };

struct ApartRan {
    Contents values;
    bool captured = true;  ///< on every rank
    std::string why;       ///< of a rank that did not
};

std::unique_ptr<Transport> transport_for(Messages messages) {
    Config config;
    auto threads = registry().transport("threads", {})(config);
    return messages == Messages::staged ? std::move(threads) : apart::make_transport(std::move(threads));
}

/// As run_steps(), all contents going by way of the device's copies.
ApartRan run_apart(const Lowered& lowered, int64_t steps, Messages messages, bool capture = true) {
    const Plan& plan = lowered.plan;
    std::vector<HeldBlocks> held(static_cast<size_t>(plan.mesh.ranks()));
    ApartRan ran;
    std::mutex mutex;
    run_ranks(plan.mesh.ranks(), [&](int64_t rank, Rendezvous& rendezvous) {
        Config config;
        config.set("reference", {true, {}, false});
        config.set("capture", {capture, {}, false});
        const auto device = apart::make_device(config);
        const auto transport = transport_for(messages);
        const RankClass& c = plan.class_of(rank);
        std::vector<Memory> arenas{
            device->allocate(std::max<int64_t>(64, lowered.persistent.most()), MemoryKind::device),
            device->allocate(std::max<int64_t>(64, c.scratch_bytes), MemoryKind::device)};
        std::vector<std::unique_ptr<Communicator>> communicators;
        std::vector<Communicator*> by_axis;
        const auto coordinates = plan.mesh.coordinates(rank);
        for (size_t axis = 0; axis < plan.mesh.axes().size(); ++axis) {
            const Axis& a = plan.mesh.axes()[axis];
            by_axis.push_back(nullptr);
            if (a.sequential || a.size == 1) continue;
            Group group;
            group.axis = a.name;
            group.ranks = plan.mesh.group(rank, static_cast<AxisId>(axis));
            group.name = a.name + "/" + std::to_string(group.ranks.front());
            group.me = static_cast<int>(coordinates[axis]);
            communicators.push_back(transport->make(group, rendezvous, arenas, std::chrono::seconds(20)));
            if (messages == Messages::staged)
                communicators.back() = std::make_unique<StagedCommunicator>(std::move(communicators.back()), *device);
            by_axis.back() = communicators.back().get();
        }
        Executor executor(plan, rank, *device, by_axis, arenas[0].data, arenas[1].data);
        for (int64_t step = 1; step <= steps; ++step) {
            for (const Operand& place : c.places) {
                const Value& v = plan.program.value(place.value);
                if (v.role == Role::temporary || (v.role != Role::input && step > 1)) continue;
                const std::vector<char> whole = contents(v, step);
                const Tensor local = executor.tensor(place.value);
                std::vector<char> block(static_cast<size_t>(local.bytes()));
                slice(whole.data(), v.type.shape, block_of(at_rest(v, plan.mesh), v.type.shape, plan.mesh, rank),
                      size_of(v.type.dtype), block.data());
                device->copy(0, local.data, block.data(), local.bytes());
                device->synchronize(0);
            }
            executor.run();
        }
        for (const Operand& place : c.places) {
            const Tensor local = executor.tensor(place.value);
            std::vector<char>& block = held[static_cast<size_t>(rank)][place.value];
            block.resize(static_cast<size_t>(local.bytes()));
            device->copy(0, block.data(), local.data, local.bytes());
            device->synchronize(0);
        }
        const std::lock_guard lock(mutex);
        ran.captured &= executor.captured();
        if (!executor.captured()) ran.why = executor.not_captured();
    });
    ran.values = gather(plan, held);
    return ran;
}

/// What lowering must know of the transport.
LowerOptions options_for(const Mesh& mesh, Messages messages) {
    LowerOptions options;
    for (const Axis& axis : mesh.axes())
        if (!axis.sequential && axis.size > 1) options.contracts[axis.name] = transport_for(messages)->contract();
    return options;
}

void same_apart(const Program& program, const Mesh& mesh, Messages messages) {
    INFO("mesh " << mesh.text() << (messages == Messages::staged ? ", staged" : ", queued"));
    constexpr int64_t steps = 4;
    const Lowered lowered = compile(program, mesh, options_for(mesh, messages));
    const Ran expected = run_steps(lowered, steps);
    const ApartRan ran = run_apart(lowered, steps, messages);
    CHECK(difference(ran.values, expected.values, 0) == "");  // the same kernels in the same order: the same bits
    const bool alone = mesh.ranks() == 1;
    INFO(ran.why);
    CHECK(ran.captured == (alone || messages == Messages::queued));
    if (!ran.captured)
        CHECK_THAT(ran.why, Catch::Matchers::Contains("its transport moves data when the host asks it to"));
    CHECK(difference(run_apart(lowered, steps, messages, false).values, expected.values, 0) == "");
}

Mesh mesh_of(std::vector<Axis> axes, int64_t micro = 1) { return Mesh(std::move(axes)).with_microbatches(micro); }

}  // namespace

TEST_CASE("apart: one rank, recorded and not") {
    Model m = mlp(8, 4, 12, true, true);
    same_apart(m.program, mesh_of({}), Messages::queued);
    same_apart(m.program, mesh_of({}, 2), Messages::queued);
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
