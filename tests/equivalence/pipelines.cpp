// Every schedule of the library on pipelines of two and four ranks, with data parallelism and uneven stages, against
// one rank: twenty steps of losses, every gradient, params at the end.
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
    int64_t pp = 1, dp = 1;
    std::string schedule = "1f1b";
    int64_t chunks = 1;
    std::string stages;
    bool ends = false;
    std::string strategy = "plugin";
};

std::unique_ptr<Experiment> made(const Asked& asked) {
    return experiment(
        "tests/equivalence/models.lua",
        fmt::format("[mesh]\npp = {}\ndp = {}\n[train]\nsteps = {}\nsequences_per_step = 8\nmicrobatches = 4\n"
                    "[data]\npath = \"none\"\ntokens_per_sequence = 8\n"
                    "[script]\nmodel = \"{}\"\nlayers = 8\nembed = 16\nstrategy = \"{}\"\nschedule = \"{}\"\n"
                    "chunks = {}\nstages = \"{}\"\nends = {}\n",
                    asked.pp, asked.dp, steps, asked.model, asked.strategy, asked.schedule, asked.chunks, asked.stages,
                    asked.ends));
}

LowerOptions options_for(const Experiment& experiment) {
    LowerOptions options;
    if (experiment.schedule) options.schedule = &*experiment.schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    return options;
}

test::Lowered compiled(const Asked& asked) {
    const auto experiment = made(asked);
    show_gradients(experiment->train);
    return test::compile(experiment->train, experiment->mesh, options_for(*experiment));
}

test::Ran run(const Asked& asked) {
    test::Running how;
    how.steps = steps;
    how.reference = false;
    how.every_step = true;
    how.contents = [](const Value& value, int64_t step) { return draw(value, step, vocab); };
    return run_steps(compiled(asked), how);
}

std::string title(const Asked& asked) {
    return fmt::format("{}, pp = {} dp = {}, {}{}{}", asked.model, asked.pp, asked.dp, asked.schedule,
                       asked.chunks > 1 ? fmt::format(", {} chunks", asked.chunks) : "",
                       asked.stages.empty() ? "" : ", stages of " + asked.stages + " layers");
}

const std::vector<std::pair<std::string, int64_t>> schedules{
    {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zb_h1", 1}, {"zbv", 2}};

}  // namespace

TEST_CASE("every schedule follows the trajectory of one rank", "[pipelines]") {
    for (const char* model : {"gpt", "llama"}) {  // gpt's table is tied to its head
        const test::Ran alone = run({model});
        CHECK(loss_of(alone.steps.back()) < 0.98 * loss_of(alone.steps.front()));
        for (const auto& [schedule, chunks] : schedules)
            for (int64_t pp : {2, 4}) {
                const Asked asked{model, pp, 1, schedule, chunks};
                CHECK(print(title(asked), follow(run(asked), alone)) <= 1);
            }
        for (const Asked& asked :
             {Asked{model, 2, 2, "1f1b"}, Asked{model, 2, 2, "zbv", 2}, Asked{model, 4, 1, "1f1b", 1, "1 3 3 1"},
              Asked{model, 2, 1, "interleaved", 2, "0 4 3 1", true}})
            CHECK(print(title(asked), follow(run(asked), alone)) <= 1);
    }
}

TEST_CASE("the pipeline strategy and its twin give the same plans", "[pipelines]") {
    for (const Asked& asked : {Asked{"gpt", 2}, Asked{"gpt", 4, 2, "zb_h1"}, Asked{"llama", 2, 1, "interleaved", 2},
                               Asked{"llama", 4, 1, "1f1b", 1, "1 3 3 1"}, Asked{"gpt", 4, 1, "1f1b", 1, "", true}}) {
        Asked twin = asked;
        twin.strategy = "twin";
        INFO(title(asked));
        CHECK(compiled(twin).plan.fingerprint == compiled(asked).plan.fingerprint);
    }
}

TEST_CASE("evaluation runs the schedule's forward fragments on the training's params", "[pipelines]") {
    for (const auto& [schedule, chunks] : schedules) {
        INFO(schedule);
        const auto experiment = made({"gpt", 2, 1, schedule, chunks});
        test::Lowered lowered;
        const LowerOptions options = options_for(*experiment);
        const Plan train =
            lower(propagate(experiment->train, experiment->mesh), experiment->mesh, lowered.persistent, options);
        lowered.plan =
            lower(propagate(*experiment->eval, experiment->mesh), experiment->mesh, lowered.persistent, options);
        check(lowered.plan, options.contracts);
        test::Running how;
        how.reference = false;
        how.contents = [](const Value& value, int64_t step) { return draw(value, step, vocab); };
        const auto one = made({"gpt"});
        const test::Ran alone = run_steps(test::compile(*one->eval, one->mesh), how);
        CHECK(loss_of(run_steps(lowered, how).values) == Approx(loss_of(alone.values)).epsilon(1e-6));
    }
}
