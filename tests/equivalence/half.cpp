// f16 with a dynamic loss scale: skipped steps, growth, and the trajectory of f32.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "follow.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

test::Ran run(const std::string& mesh, const std::string& precision, const std::string& script, int64_t steps,
              int64_t microbatches = 1) {
    const auto made = experiment({"llama", mesh, script, microbatches, precision, 8, steps});
    return run_drawn(compiled(*made), steps, 40);
}

float scalar(const test::Contents& step, const std::string& name) { return at(step, name).at(0); }

}  // namespace

TEST_CASE("f16 with a loss scale follows f32 within its rounding, on every mesh", "[half]") {
    const test::Ran reference = run("", "f32", "", 10);
    const test::Ran alone = run("", "f16", "", 10);
    for (size_t step = 0; step < 10; ++step) {
        CHECK(loss_of(alone.steps[step]) == Approx(loss_of(reference.steps[step])).epsilon(2e-3));
        CHECK(scalar(alone.steps[step], "result grad_norm") ==
              Approx(scalar(reference.steps[step], "result grad_norm")).epsilon(2e-2));
        CHECK(scalar(alone.steps[step], "result loss_scale") == 1024);
        CHECK(scalar(alone.steps[step], "result skipped") == 0);
    }
    for (const auto& [mesh, script] : {std::pair<std::string, std::string>{"dp = 2", "zero = 1"},
                                       {"tp = 2", ""},
                                       {"dp = 2\ntp = 2", "zero = 3\nsequence = true"},
                                       {"pp = 2", ""},
                                       {"pp = 2\ndp = 2\ntp = 2", "zero = 1\nschedule = \"zb_h1\""}}) {
        const test::Ran many = run(mesh, "f16", script, 10, 2);
        for (size_t step = 0; step < 10; ++step)
            CHECK(loss_of(many.steps[step]) == Approx(loss_of(alone.steps[step])).epsilon(2e-3));
    }
}

TEST_CASE("a step whose gradients overflow leaves params and optimizer as they are", "[half]") {
    for (const std::string mesh : {"", "dp = 2", "pp = 2\ndp = 2"}) {
        const test::Ran ran = run(mesh, "f16", "loss_scale = 1e9", 20, mesh.starts_with("pp") ? 2 : 1);
        size_t first = 0;  // the first step with an update
        while (first < 20 && scalar(ran.steps[first], "loss_scale.steps") == 0) ++first;
        REQUIRE((first > 3 && first < 19));
        for (size_t step = 0; step < first; ++step) {
            CHECK(scalar(ran.steps[step], "result loss_scale") == std::ldexp(1e9f, -static_cast<int>(step)));
            CHECK(scalar(ran.steps[step], "result skipped") == static_cast<float>(step + 1));
            for (const auto& [name, values] : ran.steps[step]) {
                if (name.starts_with("result") || name.starts_with("loss_scale")) continue;
                INFO(name << " after step " << step);
                CHECK(values == at(ran.steps[0], name));
                if (name.ends_with(".m") || name.ends_with(".v")) CHECK(norm(values) == 0);
            }
        }
        CHECK(scalar(ran.steps[19], "loss_scale.steps") == static_cast<float>(20 - first));
        // The first update is AdamW's first: bias correction counts updates, not steps.
        const auto& before = at(ran.steps[first - 1], "norm.weight");
        const auto& after = at(ran.steps[first], "norm.weight");
        float most = 0;
        for (size_t i = 0; i < before.size(); ++i) most = std::max(most, std::abs(after[i] - before[i]));
        CHECK(most == Approx(1e-3).epsilon(0.02));
    }
}

TEST_CASE("optimizers written from the manual follow f32 in bf16 and f16, and take part in the loss scale", "[half]") {
    const auto run = [](const char* optimizer, const char* precision, const char* mesh) {
        const auto made = experiment(
            "tests/equivalence/optimizers.lua",
            fmt::format("[mesh]\n{}\n[train]\nsteps = 20\nsequences_per_step = 8\nprecision = \"{}\"\n[data]\n"
                        "path = \"none\"\ntokens_per_sequence = 8\n[script]\noptimizer = \"{}\"\nzero = 1\n",
                        mesh, precision, optimizer));
        return run_drawn(compiled(*made), 20, 40);
    };
    for (const char* optimizer : {"lion", "muon", "nesterov", "adamw", "adafactor", "rmsprop"}) {
        const test::Ran reference = run(optimizer, "f32", "");
        for (const auto& [precision, mesh] :
             {std::pair{"bf16", ""}, std::pair{"f16", ""}, std::pair{"f16", "dp = 2"}}) {
            const test::Ran ran = run(optimizer, precision, mesh);
            INFO(optimizer << " in " << precision << " on " << mesh);
            double worst = 0;
            for (size_t step = 0; step < 20; ++step) {
                const double expected = loss_of(reference.steps[step]);
                worst = std::max(worst, std::abs(loss_of(ran.steps[step]) / expected - 1));
            }
            CHECK(worst < 0.01);
            if (precision == std::string("f16")) CHECK(scalar(ran.steps[19], "loss_scale.steps") == 20);
            if (optimizer == std::string("rmsprop"))
                CHECK(scalar(ran.steps[0], "result grad_norm") ==
                      Approx(scalar(reference.steps[0], "result grad_norm")).epsilon(2e-2));
        }
    }
}

TEST_CASE("the loss scale grows after an interval of finite steps", "[half]") {
    const test::Ran ran = run("", "f16", "loss_scale = 64.0\ninterval = 3", 7);
    const float expected[] = {64, 64, 64, 128, 128, 128, 256};
    for (size_t step = 0; step < 7; ++step) CHECK(scalar(ran.steps[step], "result loss_scale") == expected[step]);
}
