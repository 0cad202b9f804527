// The loss in tiles of rows: that of whole logits, on every mesh, without a value of rows x vocabulary elements.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "follow.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

/// 8 sequences of 8 tokens; a tile of 5 rows ends inside of a sequence, and the last one is shorter.
std::string job(const std::string& mesh, const std::string& precision, const std::string& script,
                int64_t microbatches = 1) {
    return fmt::format(
        "[mesh]\n{}\n[train]\nsteps = 3\nsequences_per_step = 8\nmicrobatches = {}\nprecision = \"{}\"\n"
        "[data]\npath = \"none\"\ntokens_per_sequence = 8\n[script]\n{}\n",
        mesh, microbatches, precision, script);
}

std::unique_ptr<Experiment> made(const std::string& toml) { return experiment("tests/equivalence/models.lua", toml); }

test::Ran on_reference(const std::string& toml) {
    const auto experiment = made(toml);
    test::Running how;
    how.steps = 3;
    how.every_step = true;
    how.contents = [](const Value& value, int64_t step) { return draw(value, step, 40); };
    return test::run_steps(compiled(*experiment), how);
}

int64_t ops_of(const Program& program, std::string_view kind) {
    return std::ranges::count_if(program.ops, [&](const Op& op) { return op.kind == kind; });
}

/// The CPU's own kernels, which report what they need as scratch.
std::unique_ptr<Device> one_thread() {
    Config config;
    config.set("threads", {int64_t{1}, {}, false});
    return test::registry().device("cpu", {})(config);
}

}  // namespace

TEST_CASE("losses in tiles are those of whole logits, bit for bit on reference kernels", "[tiles]") {
    for (const char* precision : {"f32", "bf16", "f16"})
        for (const char* model : {"model = \"gpt\"", "model = \"gpt\"\ntied = false\nrows = 48", "model = \"llama\"",
                                  "model = \"qwen2\""}) {
            const std::string scaling = precision == std::string("f16") ? "\nloss_scale = 1024.0" : "";
            const test::Ran whole = on_reference(job("", precision, model + scaling + "\nloss_tile = 0"));
            const test::Ran tiles = on_reference(job("", precision, model + scaling + "\nloss_tile = 5"));
            INFO(precision << " " << model);
            CHECK(at(tiles.steps[0], "result loss_sum") == at(whole.steps[0], "result loss_sum"));
            CHECK(at(tiles.steps[0], "result count") == at(whole.steps[0], "result count"));
            const double close = precision == std::string("f32") ? 1e-6 : 2e-3;
            for (const char* result : {"result loss_sum", "result grad_norm"})
                CHECK(at(tiles.steps[2], result)[0] == Approx(at(whole.steps[2], result)[0]).epsilon(close));
        }
}

TEST_CASE("the loss in tiles passes verification on every mesh", "[tiles]") {
    const std::tuple<const char*, const char*, const char*> jobs[] = {
        {"tp = 2", "f32", "model = \"gpt\"\nrows = 48"},
        {"dp = 2\ntp = 2", "bf16", "model = \"llama\"\nsequence = true"},
        {"tp = 2", "f16", "model = \"llama\"\nrows = 48"},
        {"dp = 2", "f32", "model = \"llama\"\nzero = 1"},
        {"dp = 2", "f32", "model = \"gpt\"\nzero = 2"},
        {"dp = 2\ntp = 2", "f32", "model = \"gpt\"\nzero = 3"},
        {"pp = 2\ntp = 2", "f32", "model = \"llama\"\nschedule = \"1f1b\""},
        {"pp = 2\ndp = 2", "f32", "model = \"gpt\"\nschedule = \"zb_h1\"\nzero = 1"},
        {"pp = 2\ntp = 2", "f16", "model = \"llama\"\nschedule = \"zb_h1\"\nrecompute = \"full\""},
    };
    for (const auto& [mesh, precision, script] : jobs) {
        const std::string scaling = precision == std::string("f16") ? "\nloss_scale = 256.0" : "";
        const auto experiment = made(job(mesh, precision, script + scaling + "\nloss_tile = 5", 2));
        CHECK(ops_of(experiment->train(), "linear_cross_entropy") == 1);
        const test::Lowered lowered = compiled(*experiment);
        test::Verifying how;
        how.options.steps = 2;
        how.contents = [](const Value& value, int64_t step) { return draw(value, step, 40); };
        const VerifyReport report = test::verify_plan(experiment->train(), lowered, how);
        INFO(mesh << " " << precision << " " << script << "\n" << report.text(lowered.plan, {}));
        CHECK(report.passed());
    }
}

TEST_CASE("f16 with a loss scale follows f32 with the loss in tiles", "[tiles]") {
    const auto run = [](const char* precision, const char* mesh, const char* script) {
        const auto experiment =
            made(job(mesh, precision, std::string("model = \"llama\"\nloss_tile = 5\n") + script, 2));
        return run_drawn(compiled(*experiment), 10, 40);
    };
    const test::Ran reference = run("f32", "", "");
    for (const auto& [mesh, script] : {std::pair{"", ""}, {"tp = 2", "loss_scale = 256.0"}}) {
        const test::Ran half = run("f16", mesh, script);
        for (size_t step = 0; step < 10; ++step) {
            CHECK(loss_of(half.steps[step]) == Approx(loss_of(reference.steps[step])).epsilon(2e-3));
            CHECK(at(half.steps[step], "result grad_norm")[0] ==
                  Approx(at(reference.steps[step], "result grad_norm")[0]).epsilon(2e-2));
        }
    }
}

TEST_CASE("with a vocabulary of 131,072, no value has rows x vocabulary elements, and memory hardly grows", "[tiles]") {
    const auto plan_of = [](int64_t vocab, const char* mesh) {
        const auto experiment = made(fmt::format(
            "[mesh]\n{}\n[train]\nsteps = 3\nsequences_per_step = 64\n[data]\npath = \"none\"\n"
            "tokens_per_sequence = 1024\n[script]\nmodel = \"gpt\"\nlayers = 6\nembed = 384\nheads = 6\nmlp = 1536\n"
            "context = 1024\nvocab = {}\n",
            mesh, vocab));
        return compiled(*experiment);
    };
    const auto without_tables = [](const Plan& plan, int64_t vocab) {
        const int64_t table = vocab * 384 * 4;  // its gradient is of the scratch arena
        return plan.classes[0].scratch_bytes - table;
    };
    const test::Lowered small = plan_of(1024, "");
    const test::Lowered large = plan_of(131072, "");
    CHECK(ops_of(small.plan.program, "linear_cross_entropy") == 0);
    CHECK(ops_of(large.plan.program, "linear_cross_entropy") == 1);
    const auto few = static_cast<double>(without_tables(small.plan, 1024));
    const auto many = static_cast<double>(without_tables(large.plan, 131072));
    fmt::print("  65,536 tokens: {:.3f} times the scratch of a vocabulary of 1,024\n", many / few);
    CHECK(many <= 1.1 * few);
    const test::Lowered split = plan_of(131072, "tp = 2");
    CHECK(ops_of(split.plan.program, "linear_cross_entropy_grad") == 1);
    // A tile of logits; of whole rows their losses, a buffer for one of them, and packed operands of a product.
    constexpr int64_t enough = (int64_t{64} << 20) + 65536 * 4 + 131072 * 4 + (int64_t{2} << 20);
    const auto device = one_thread();
    for (const test::Lowered* lowered : {&large, &split}) {
        int64_t losses = 0;
        for (const KernelSpec& spec : lowered->plan.classes[0].kernels) {
            if (!spec.op.starts_with("linear_cross_entropy")) continue;
            ++losses;
            INFO(spec.op);
            CHECK(device->prepare(spec)->scratch_bytes() <= enough);
        }
        CHECK(losses == (lowered == &large ? 1 : 2));
        int64_t most = 0;
        for (const Value& value : lowered->plan.program.values) most = std::max(most, value.type.count());
        CHECK(most < int64_t{65536} * 131072 / 16);
    }
}
