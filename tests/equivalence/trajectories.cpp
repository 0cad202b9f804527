// Twenty steps on meshes against one rank: losses, the first step's gradients, params at the end.
#include <fmt/format.h>
#include <catch2/catch.hpp>

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
    return experiment(
        "tests/equivalence/models.lua",
        fmt::format(
            "[mesh]\ndp = {}\n[train]\nsteps = {}\nsequences_per_step = 8\nmicrobatches = {}\nprecision = \"{}\"\n"
            "[data]\npath = \"none\"\ntokens_per_sequence = 8\n"
            "[script]\nmodel = \"{}\"\nstrategy = \"{}\"\ndropout = {:.2f}\n",
            asked.dp, steps, asked.microbatches, asked.precision, asked.model, asked.strategy, asked.dropout));
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
    const auto lowered = [](const std::string& mesh, const std::string& script, const std::string& model = "gpt",
                            int microbatches = 1) {
        const auto made = experiment(
            "tests/equivalence/models.lua",
            fmt::format("[mesh]\n{}[train]\nsteps = {}\nsequences_per_step = 8\nmicrobatches = {}\n[data]\n"
                        "path = \"none\"\ntokens_per_sequence = 8\n[script]\nmodel = \"{}\"\ndropout = 0.1\n{}",
                        mesh, steps, microbatches, model, script));
        show_gradients(made->train());
        return equivalence::compiled(*made);
    };
    const std::pair<std::string, std::string> meshes[] = {
        {"cp = 2\n", "cp = \"auto\"\norder = \"zigzag\"\n"},
        {"cp = 4\n", "cp = \"gather\"\norder = \"zigzag\"\nstrategy = \"twin\"\n"},
        {"dp = 2\ncp = 2\n", "cp = \"gather\"\norder = \"balanced\"\nzero = 3\n"},
        {"cp = 2\ntp = 2\n", "cp = \"auto\"\norder = \"balanced\"\nsequence = true\n"},
        {"cp = 2\n", "cp = \"ring\"\norder = \"zigzag\"\nzero = 1\n"},
        {"cp = 4\n", "cp = \"ring\"\norder = \"balanced\"\n"},
        {"co = 2\ncp = 2\n", "co = \"ring\"\ncp = \"heads\"\norder = \"zigzag\"\n"},
        {"dp = 2\ncp = 2\n", "cp = \"ring\"\norder = \"balanced\"\nzero = 2\n"}};
    const std::pair<std::string, std::string> stages[] = {
        {"pp = 2\ncp = 2\n", "cp = \"ring\"\norder = \"zigzag\"\nschedule = \"zb_h1\"\n"},
        {"pp = 2\ncp = 2\n", "cp = \"gather\"\norder = \"balanced\"\n"}};
    const std::string packed = "packed = true\n";
    for (const bool documents : {false, true}) {  // or one a row
        const test::Ran alone = run_drawn(lowered("", packed), steps, vocab, documents);
        for (const auto& [mesh, script] : meshes)
            CHECK(print(fmt::format("gpt, dropout 0.1, {}{}", mesh, script),
                        follow(run_drawn(lowered(mesh, script + packed), steps, vocab, documents), alone)) <= 1);
        for (const auto& [mesh, script] : stages)
            CHECK(print(fmt::format("gpt, dropout 0.1, 2 micro-batches, {}{}", mesh, script),
                        follow(run_drawn(lowered(mesh, script + packed, "gpt", 2), steps, vocab, documents), alone)) <=
                  1);
        const test::Ran llama = run_drawn(lowered("", packed, "llama"), steps, vocab, documents);
        const std::string zigzag = "cp = \"ring\"\norder = \"zigzag\"\n";
        CHECK(print("llama, cp = 4\n" + zigzag,
                    follow(run_drawn(lowered("cp = 4\n", zigzag + packed, "llama"), steps, vocab, documents), llama)) <=
              1);
        // Rows of one document have the masks and losses of a model that knows neither documents nor places.
        if (!documents)
            CHECK(print("the same without places", follow(run_drawn(lowered("", ""), steps, vocab), alone)) <= 1);
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
