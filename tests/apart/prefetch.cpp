// How long a step lasts whose gathers run ahead of their readers, where kernels and messages last as long as they are
// told to, on queues that wait for what the plan says.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "apart/apart.h"
#include "plan_ranks.h"
#include "unit/layout_models.h"

using namespace orrery;
using namespace orrery::test;

namespace {

constexpr int64_t ranks = 2;

/// Equal layers, each a product, under ZeRO-3 over dp.
Model layers_of(int count, PrefetchDepth ahead) {
    constexpr int64_t embed = 8;
    Model m;
    ValueId h = m.input("x", {8, embed}, {"batch", "embed"});
    for (int layer = 0; layer < count; ++layer) {
        m.build.push_scope("layers." + std::to_string(layer));
        const std::string name = "layers." + std::to_string(layer) + ".w";
        h = m.op("tanh", {m.op("matmul", {h, m.param(name, {embed, embed}, {"embed", "embed"})})});
        m.build.pop_scope();
    }
    m.train(m.op("sum", {m.op("square", {h})}, {{"dims", Shape{0, 1}}}));
    m.split_names({{"batch", "dp"}});
    const Placement split = Placement::split(0);
    for (ValueId p : m.program.params()) {
        const std::string name = m.program.value(p).name;
        m.store(name, "dp", split);
        m.use(name, "dp", Placement::replicated(), Keep::fragment);
        m.program.store(m.program.grad_of(p), "dp", split, m.here());
        for (const char* state : {".m", ".v"}) m.store(name + state, "dp", split);
    }
    m.program.prefetch("dp", ahead, {});
    return m;
}

CompileOptions queued() {
    CompileOptions options;
    options.contracts["dp"] = apart::make_transport(threads_transport())->contract();
    return options;
}

struct Durations {
    int64_t product = 100'000, other = 1'000, gather = 0;  // ns

    int64_t kernel(const KernelSpec& spec) const { return spec.op.starts_with("matmul") ? product : other; }
    int64_t message(std::string_view what) const { return what == "all_reduce" ? other : gather; }
};

/// What a step cannot be shorter than: the first gather, then kernels and messages beside each other, the last
/// reduce-scatter, and the update.
struct Bound {
    int64_t compute = 0, update = 0, messages = 0, between = 0;

    Bound(const Plan& plan, const Durations& d) {
        const RankClass& c = plan.classes[0];
        for (const Instruction& i : c.stream) {
            if (i.axis != none) {
                if (i.opcode == Opcode::all_reduce) continue;
                ++messages;
                continue;
            }
            const bool updates = i.op == none || plan.program.op(i.op).phase == Phase::update;
            const int64_t lasts =
                i.opcode == Opcode::kernel ? d.kernel(c.kernels[static_cast<size_t>(i.kernel)]) : int64_t{0};
            (updates ? update : compute) += lasts;
        }
        between = (messages - 2) * d.gather;
    }
    int64_t overlapped(const Durations& d) const { return 2 * d.gather + std::max(compute, between) + update; }
    int64_t one_by_one(const Durations& d) const { return compute + messages * d.gather + update; }
};

/// Of the last of so many steps: the second is captured, where it may be.
int64_t last_step(const Lowered& lowered, const Durations& d, bool capture) {
    const auto until = [&](int64_t steps) {
        std::vector<std::shared_ptr<apart::Timeline>> timelines;
        for (int64_t rank = 0; rank < ranks; ++rank) {
            timelines.push_back(std::make_shared<apart::Timeline>());
            timelines.back()->kernel = [&](const KernelSpec& spec) { return d.kernel(spec); };
            timelines.back()->message = [&](std::string_view what, int64_t) { return d.message(what); };
        }
        Running how;
        how.steps = steps;
        how.kind = "apart";
        how.device = [&](int64_t rank) {
            Config config;
            config.set("reference", {true, {}, false});
            config.set("capture", {capture, {}, false});
            return apart::make_device(config, timelines[static_cast<size_t>(rank)]);
        };
        how.transport = [&] { return apart::make_transport(threads_transport(), timelines); };
        const Ran ran = run_steps(lowered, how);
        INFO(ran.why);
        CHECK(ran.captured == (capture && steps > 1 ? ranks : 0));
        CHECK(timelines[0]->host == timelines[1]->host);
        return timelines[0]->host;
    };
    return until(3) - until(2);
}

}  // namespace

TEST_CASE("prefetch: messages run beside the kernels, and a step lasts as long as the longer of both") {
    constexpr int layers = 12;
    for (const int64_t micros : {1, 4}) {
        const Mesh mesh = Mesh({{"dp", ranks}}).with_microbatches(micros);
        const Lowered ahead = compile(layers_of(layers, {1, 0}).program, mesh, queued());
        const Lowered at_once = compile(layers_of(layers, {}).program, mesh, queued());
        REQUIRE(ahead.plan.ahead.at(0) == PrefetchDepth{1, 0});
        CHECK(at_once.plan.ahead.empty());
        for (const double ratio : {0.5, 1.0, 2.0}) {
            Durations d;
            const Bound none(ahead.plan, d);
            d.gather =
                static_cast<int64_t>(ratio * static_cast<double>(none.compute) / static_cast<double>(none.messages));
            const Bound bound(ahead.plan, d);
            for (const bool capture : {false, true}) {
                const int64_t now = last_step(ahead, d, capture), before = last_step(at_once, d, capture);
                const auto least = static_cast<double>(bound.overlapped(d));
                const std::string row = fmt::format(
                    "{} micro-batches, messages {} of kernels, {}: {:.3f} of the bound; without prefetch {:.3f} of it, "
                    "{:.3f} of the sum of all",
                    micros, ratio, capture ? "captured" : "issued", static_cast<double>(now) / least,
                    static_cast<double>(before) / least,
                    static_cast<double>(before) / static_cast<double>(bound.one_by_one(d)));
                INFO(row);
                CHECK(static_cast<double>(now) <= 1.03 * least);
                CHECK(now >= std::max(bound.compute, bound.between));
                CHECK(now < before);
                if (std::getenv("ORRERY_SHOW")) fmt::print("{}\n", row);
            }
        }
    }
}

TEST_CASE("prefetch: memory grows by the layers that are ahead, and bytes say how many these are") {
    const auto scratch = [](PrefetchDepth ahead) {
        const Mesh mesh = Mesh({{"dp", ranks}}).with_microbatches(2);
        return compile(layers_of(12, ahead).program, mesh, queued()).plan.classes[0].scratch_bytes;
    };
    constexpr int64_t layer = 8 * 8 * 4;  // of its params, or its gradients
    const int64_t none = scratch({});
    int64_t last = none;
    for (const int64_t layers : {1, 2, 4}) {
        const int64_t now = scratch({layers, 0});
        CHECK(now > last);
        // As many gathered early; as many gradients trail, with the part of the sum that comes of each; and a layer's
        // own, which is made while its params are still there.
        CHECK(now <= none + layer + layers * (layer + layer + layer / ranks));
        CHECK(now == scratch({0, layers * layer}));
        last = now;
    }
    CHECK(scratch({0, layer - 1}) <= none + layer);
}
