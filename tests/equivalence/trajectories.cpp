// Twenty steps on meshes against one rank: losses, the first step's gradients, params at the end.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <map>

#include "follow.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

constexpr int64_t steps = 20;
constexpr int64_t vocab = 40;

struct Asked {
    std::string model;
    int64_t dp = 1;
    int64_t microbatches = 1;
    std::string strategy = "plugin";
    double dropout = 0;
    std::string precision = "f32";
};

std::unique_ptr<Experiment> made(const Asked& asked) {
    return experiment({asked.model, fmt::format("dp = {}", asked.dp),
                       fmt::format("strategy = \"{}\"\ndropout = {:.2f}", asked.strategy, asked.dropout),
                       asked.microbatches, asked.precision, 8, steps});
}

test::Lowered compiled(const Asked& asked) {
    const auto experiment = made(asked);
    show_gradients(experiment->train());
    return test::compile(experiment->train(), experiment->mesh);
}

test::Ran run(const test::Lowered& lowered) { return run_drawn(lowered, steps, vocab); }

test::Ran run(const Asked& asked) { return run(compiled(asked)); }

std::string title(const Asked& asked) {
    return fmt::format("{} {}, dp = {} ({}), {} micro-batches{}, against one rank", asked.model, asked.precision,
                       asked.dp, asked.strategy, asked.microbatches,
                       asked.dropout > 0 ? fmt::format(", dropout {}", asked.dropout) : "");
}

}  // namespace

TEST_CASE("data parallelism and micro-batches follow the trajectory of one rank", "[trajectories]") {
    for (const char* model : {"gpt", "llama", "mlp"}) {
        const test::Ran alone = run({model});
        // It learns, so there is something to follow.
        CHECK(loss_of(alone.steps.back()) < 0.98 * loss_of(alone.steps.front()));
        for (const Asked& asked : {Asked{model, 2}, Asked{model, 4, 1, "twin"}, Asked{model, 1, 4}, Asked{model, 2, 2},
                                   Asked{model, 2, 2, "twin"}})
            CHECK(print(title(asked), follow(run(asked), alone)) <= 1);
        for (int64_t dp : {2, 4})
            for (int64_t microbatches : {1, 2})
                CHECK(compiled({model, dp, microbatches, "twin"}).plan.fingerprint ==
                      compiled({model, dp, microbatches}).plan.fingerprint);
    }
}

TEST_CASE("every mesh draws one rank's dropout", "[trajectories]") {
    const test::Ran alone = run({"gpt", 1, 1, "plugin", 0.1});
    // Other masks would show: without dropout the first loss is another one.
    CHECK(std::abs(loss_of(run({"gpt"}).steps[0]) - loss_of(alone.steps[0])) > 1e-3);
    for (const Asked& asked : {Asked{"gpt", 2, 1, "plugin", 0.1}, Asked{"gpt", 4, 1, "twin", 0.1},
                               Asked{"gpt", 1, 4, "plugin", 0.1}, Asked{"gpt", 2, 2, "plugin", 0.1}}) {
        CHECK(print(title(asked), follow(run(asked), alone)) <= 1);
    }
}

TEST_CASE("tokens in any order draw one rank's dropout and follow its trajectory", "[trajectories]") {
    const auto ran = [](ModelRun asked, bool documents) {
        asked.script += "dropout = 0.1\n";
        const auto made = experiment(asked);
        show_gradients(made->train());
        return run_drawn(equivalence::compiled(*made), steps, vocab, documents);
    };
    const ModelRun meshes[] = {
        {"gpt", "cp = 2", "cp = \"auto\"\norder = \"zigzag\"\n"},
        {"gpt", "cp = 4", "cp = \"gather\"\norder = \"zigzag\"\nstrategy = \"twin\"\n"},
        {"gpt", "dp = 2, cp = 2", "cp = \"gather\"\norder = \"balanced\"\nzero = 3\n"},
        {"gpt", "cp = 2, tp = 2", "cp = \"auto\"\norder = \"balanced\"\nsequence = true\n"},
        {"gpt", "cp = 2", "cp = \"ring\"\norder = \"zigzag\"\nzero = 1\n"},
        {"gpt", "cp = 4", "cp = \"ring\"\norder = \"balanced\"\n"},
        {"gpt", "co = 2, cp = 2", "co = \"ring\"\ncp = \"heads\"\norder = \"zigzag\"\n"},
        {"gpt", "dp = 2, cp = 2", "cp = \"ring\"\norder = \"balanced\"\nzero = 2\n"},
        {"gpt", "pp = 2, cp = 2", "cp = \"ring\"\norder = \"zigzag\"\nschedule = \"zb_h1\"\n", 2},
        {"gpt", "pp = 2, cp = 2", "cp = \"gather\"\norder = \"balanced\"\n", 2},
        {"llama", "cp = 4", "cp = \"ring\"\norder = \"zigzag\"\n"}};
    const std::string packed = "packed = true\n";
    for (const bool documents : {false, true}) {  // or one a row
        std::map<std::string, test::Ran> alone;
        for (const char* model : {"gpt", "llama"}) alone[model] = ran({model, "", packed}, documents);
        for (ModelRun asked : meshes) {
            asked.script += packed;
            CHECK(print(fmt::format("{}, {}, {} micro-batches\n{}", asked.model, asked.mesh, asked.microbatches,
                                    asked.script),
                        follow(ran(asked, documents), alone.at(asked.model))) <= 1);
        }
        // Rows of one document have the masks and losses of a model that knows neither documents nor places.
        if (!documents) CHECK(print("the same without places", follow(ran({"gpt"}, false), alone.at("gpt"))) <= 1);
    }
}

// Rows of activations are the same bits on every mesh, and bf16 gradients of params are summed in f32: the first step
// differs by f32 noise only. Params then differ by about 1e-7, so that now and then one rounds to its neighbour in
// bf16, 2^-8 away: losses and norms stay within that. A param whose gradient is all noise may take one AdamW step,
// 1e-3, more or less on the way; GPT-2's key biases, whose gradient is zero in theory, take them all and are left out.
TEST_CASE("bf16 on several ranks follows one rank within its noise", "[trajectories]") {
    Bounds bounds;
    bounds.loss = std::ldexp(1.0, -8);
    bounds.params = 1e-3;
    bounds.left_out = [](const std::string& param) { return param.ends_with("attn.k.bias"); };
    for (const char* model : {"gpt", "llama"}) {
        const Asked one{model, 1, 1, "plugin", 0, "bf16"};
        const test::Ran alone = run(one);
        // It is another arithmetic: f32 gradients are farther away than its tolerance.
        const auto rounded = follow(alone, run({model}), bounds);
        print(fmt::format("{} bf16 against f32, one rank", model), rounded);
        CHECK(rounded.at(1).part > 10);
        for (const Asked& asked : {Asked{model, 2, 1, "plugin", 0, "bf16"}, Asked{model, 4, 1, "plugin", 0, "bf16"},
                                   Asked{model, 2, 2, "plugin", 0, "bf16"}})
            CHECK(print(title(asked), follow(run(asked), alone, bounds)) <= 1);
    }
}
