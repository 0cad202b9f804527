// Attention as ops of its own against the fused op: losses, the first step's gradients, params at the end.
#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <cmath>

#include "follow.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

constexpr int64_t steps = 8, vocab = 40;

std::unique_ptr<Experiment> made(const std::string& script, const std::string& mesh, const std::string& options,
                                 const std::string& precision = "f32", int64_t microbatches = 1) {
    return experiment(script, fmt::format("[mesh]\n{}\n[train]\nsteps = {}\nsequences_per_step = 8\n"
                                          "microbatches = {}\nprecision = \"{}\"\n[data]\npath = \"none\"\n"
                                          "tokens_per_sequence = 8\n[script]\n{}\n",
                                          mesh, steps, microbatches, precision, options));
}

test::Ran run(const std::string& script, const std::string& mesh, const std::string& options,
              const std::string& precision = "f32", int64_t microbatches = 1) {
    const auto experiment = made(script, mesh, options, precision, microbatches);
    show_gradients(experiment->train());
    return run_drawn(compiled(*experiment), steps, vocab);
}

int ops_of(const Program& program, std::string_view kind) {
    return static_cast<int>(
        std::count_if(program.ops.begin(), program.ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

const char* const models = "tests/equivalence/models.lua";
const char* const layer = "tests/equivalence/attention.lua";

}  // namespace

TEST_CASE("models with attention as ops follow those with the fused op", "[attention]") {
    for (const std::string model : {"gpt", "llama", "qwen2"}) {
        const std::string base = fmt::format("model = \"{}\"\n", model), apart = base + "fused = false\n";
        const auto traced = made(models, "", apart);
        CHECK(ops_of(traced->train(), "attention") == 0);
        CHECK(ops_of(traced->train(), "softmax") == 2);
        CHECK(ops_of(traced->train(), "softmax_grad") == 2);
        const test::Ran fused = run(models, "", base);
        const auto follows = [&](const std::string& mesh, const std::string& options, int64_t microbatches) {
            const test::Ran ran = run(models, mesh, apart + options, "f32", microbatches);
            CHECK(print(fmt::format("{} as ops, {} {}, against the fused op", model, mesh, options),
                        follow(ran, fused)) <= 1);
        };
        follows("", "", 1);
        follows("tp = 2", "", 2);
        follows("tp = 2", "sequence = true", 1);
        follows("dp = 2", "zero = 3", 2);
        follows("pp = 2", "", 2);
        follows("tp = 2", "recompute = \"full\"", 1);
    }
}

TEST_CASE("masks of attention as ops are those of the fused op", "[attention]") {
    for (const char* form : {"causal = false", "window = 3", "window = 1", "window = 8", "kv_heads = 2\nwindow = 5",
                             "kv_heads = 1\ncausal = false"}) {
        INFO(form);
        Bounds
            bounds;  // of one key the softmax is 1: no gradient reaches q and k but noise, of which AdamW makes steps
        bounds.left_out = [form](const std::string& param) {
            return std::string(form) == "window = 1" &&
                   (param.find("attn.q") != std::string::npos || param.find("attn.k") != std::string::npos);
        };
        const test::Ran fused = run(layer, "", form);
        for (const char* mesh : {"", "dp = 2"}) {
            const test::Ran apart = run(layer, mesh, std::string(form) + "\nfused = false");
            CHECK(print(fmt::format("{} {} as ops", form, mesh), follow(apart, fused, bounds)) <= 1);
        }
    }
    CHECK_THROWS_WITH(made(layer, "", "fused = false\ncausal = false\nwindow = 2"),
                      Catch::Contains("window = 2 needs causal attention"));
}

// Scores of 8 bits of precision differ from those that stay in f32 inside of the op.
TEST_CASE("in bf16 attention as ops follows the fused op within bf16's noise", "[attention]") {
    Bounds bounds;
    bounds.loss = std::ldexp(1.0, -7);
    bounds.gradients = std::ldexp(1.0, 14);  // f32's tolerance is 1e-5; a bf16 has 2^-9 of itself
    bounds.params = 2e-3 * steps;            // signs of AdamW's first steps
    const test::Ran fused = run(layer, "", "", "bf16");
    CHECK(print("bf16 as ops", follow(run(layer, "", "fused = false", "bf16"), fused, bounds)) <= 1);
    CHECK(print("bf16 as ops, tp = 2",
                follow(run(layer, "tp = 2", "fused = false\nsequence = true", "bf16"), fused, bounds)) <= 1);
}
