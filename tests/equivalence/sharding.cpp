// The strategies tensor, zero and recompute against one rank: losses, the first step's gradients, params at the end.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "follow.h"

using namespace orrery;
using namespace orrery::equivalence;

namespace {

constexpr int64_t vocab = 40;

test::Lowered compiled(const ModelRun& asked) {
    const auto made = experiment(asked);
    show_gradients(made->train());
    return equivalence::compiled(*made);
}

test::Ran run(const ModelRun& asked) { return run_drawn(compiled(asked), asked.steps, vocab); }

std::string title(const ModelRun& asked) {
    std::string script = asked.script;
    std::replace(script.begin(), script.end(), '\n', ' ');
    return fmt::format("{} {}, {} {}, {} micro-batches, against one rank", asked.model, asked.precision, asked.mesh,
                       script, asked.microbatches);
}

const std::vector<std::pair<std::string, std::string>> grid = {
    {"tp = 2", ""},
    {"tp = 2", "sequence = true"},
    {"dp = 2", "zero = 1"},
    {"dp = 2", "zero = 2"},
    {"dp = 2", "zero = 3"},
    {"hp = 2, dp = 2", "zero = 3\nreplicate = \"hp\""},
    {"hp = 2, dp = 2", "zero = 1\nreplicate = \"hp\""},
    {"dp = 2, cp = 2", "zero = 1"},
    {"dp = 2, cp = 2", "zero = 3"},
    {"cp = 2", "cp = \"heads\""},
    {"cp = 4", "cp = \"heads\"\nrecompute = \"full\""},
    {"dp = 2, cp = 2", "cp = \"heads\"\nzero = 3"},
    {"cp = 2, tp = 2", "cp = \"heads\"\nsequence = true\nzero = 1"},
    {"pp = 2, cp = 2", "cp = \"heads\""},
    {"cp = 4", "cp = \"gather\""},
    {"dp = 2, cp = 2", "cp = \"gather\"\nkeep = true\nzero = 2"},
    {"cp = 2, tp = 2", "cp = \"gather\"\nsequence = true\nrecompute = \"full\""},
    {"cp = 4", "cp = \"ring\""},
    {"dp = 2, cp = 2", "cp = \"ring\"\nzero = 3\nrecompute = \"selective\""},
    {"cp = 2, tp = 2", "cp = \"ring\"\nsequence = true\nrecompute = \"full\"\nzero = 1"},
    {"pp = 2, cp = 2", "cp = \"ring\"\nschedule = \"zb_h1\""},
    {"co = 2, cp = 2", "co = \"ring\"\ncp = \"heads\"\nzero = 2"},
    {"dp = 2, tp = 2", ""},
    {"dp = 2, tp = 2", "zero = 1"},
    {"dp = 2, tp = 2", "zero = 2\nsequence = true"},
    {"dp = 2, tp = 2", "zero = 3\nsequence = true"},
    {"tp = 2, dp = 2", "zero = 3"},
    {"dp = 2, tp = 2", "zero = 3\nsequence = true\nrecompute = \"full\""},
    {"", "recompute = \"full\""},
    {"tp = 2", "recompute = \"selective\"\nsequence = true"},
    {"pp = 2", "recompute = \"full\""},
    {"pp = 2, tp = 2", "recompute = \"selective\"\nsequence = true\nschedule = \"zb_h1\""},
    {"pp = 2, dp = 2", "zero = 3\nrecompute = \"full\"\nschedule = \"zbv\"\nchunks = 2\nends = true"},
};

}  // namespace

TEST_CASE("tensor, sequence, zero and recompute follow the trajectory of one rank", "[sharding]") {
    for (const char* model : {"gpt", "llama", "qwen2"}) {
        const test::Ran alone = run({model});
        for (const auto& [mesh, script] : grid)
            for (int64_t microbatches : {1, 2}) {
                const ModelRun asked{model, mesh, script, microbatches};
                CHECK(print(title(asked), follow(run(asked), alone)) <= 1);
            }
    }
}

// 6 positions: tp splits their gradient in halves of 3, which dp=2 does not divide; the whole it does.
TEST_CASE("zero splits what divides, where tp splits the sequence unevenly for it", "[sharding]") {
    const std::string uneven = "sequence = true\ncontext = 6\n";
    const test::Ran alone = run({"gpt", "", "context = 6\n", 1, "f32", 6});
    for (const char* zero : {"", "zero = 1", "zero = 2", "zero = 3"}) {
        const ModelRun asked{"gpt", "dp = 2, tp = 2", uneven + zero, 2, "f32", 6};
        CHECK(print(title(asked), follow(run(asked), alone)) <= 1);
        ModelRun low = asked;
        low.precision = "bf16";
        CHECK_NOTHROW(compiled(low));
    }
}

TEST_CASE("what cannot be split is refused with the reason, or listed where it may stay whole", "[sharding]") {
    const auto ask = [&](const std::string& model, const std::string& mesh, const std::string& script) {
        return experiment({model, mesh, script});
    };
    CHECK_THROWS_WITH(ask("llama", "tp = 4", ""), Catch::Contains("tp=4 is larger than kv_heads = 2"));
    CHECK_THROWS_WITH(ask("gpt", "tp = 2", "mlp = 51"),
                      Catch::Contains("cannot split mlp over tp=2: 51 of them in h.0.mlp.up.weight"));
    CHECK_THROWS_WITH(ask("gpt", "dp = 2", "zero = 4"), Catch::Contains("stage is 4"));
    // 3 heads of 10: tp keeps them whole. 5 ranks: no dim of the rest divides.
    const auto loose = ask("gpt", "tp = 2", "heads = 3\nembed = 30\noptional = true");
    const auto& notes = loose->train().remarks();
    const auto noted = [&](const std::string& param) {
        return std::any_of(notes.begin(), notes.end(),
                           [&](const Remark& note) { return loose->train().value(note.value).name == param; });
    };
    CHECK(noted("h.0.attn.q.weight"));
    CHECK(!noted("h.0.mlp.up.weight"));
    const auto small = ask("gpt", "dp = 8", "zero = 1\nembed = 36\nmlp = 44");
    REQUIRE(!small->train().remarks().empty());
    CHECK(small->train().remarks()[0].text == "whole over dp=8: no dim divides");
}

// As in trajectories.cpp: the first step shows f32 noise only, later ones what bf16 makes of it.
TEST_CASE("bf16 under zero and pipelines follows one rank within its noise", "[sharding]") {
    Bounds bounds;
    bounds.loss = std::ldexp(1.0, -8);
    bounds.params = 1e-3;
    bounds.left_out = [](const std::string& param) { return param.ends_with("attn.k.bias"); };
    for (const char* model : {"gpt", "llama"}) {
        const test::Ran alone = run({model, "", "", 1, "bf16"});
        for (const char* zero : {"zero = 1", "zero = 2", "zero = 3"}) {
            const ModelRun asked{model, "dp = 2", zero, 2, "bf16"};
            CHECK(print(title(asked), follow(run(asked), alone, bounds)) <= 1);
        }
        for (const auto& [mesh, script] : {std::pair<std::string, std::string>{"pp = 2", ""},
                                           {"pp = 2, dp = 2", "zero = 1\nschedule = \"zb_h1\""}}) {
            const ModelRun asked{model, mesh, script, 4, "bf16"};
            CHECK(print(title(asked), follow(run(asked), alone, bounds)) <= 1);
        }
    }
}
