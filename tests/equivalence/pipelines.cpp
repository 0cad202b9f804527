// Every schedule of the library on pipelines of two and four ranks, with data parallelism and uneven stages, against
// one rank: twenty steps of losses, every gradient, params at the end.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "draw/picture.h"
#include "follow.h"
#include "slots.h"
#include "verify_plan.h"

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
    int64_t micro = 4;
    std::string recompute = {};
};

std::unique_ptr<Experiment> made(const Asked& asked) {
    return experiment({asked.model, fmt::format("pp = {}\ndp = {}", asked.pp, asked.dp),
                       fmt::format("layers = 8\nembed = 16\nschedule = \"{}\"\nchunks = {}\nstages = \"{}\"\n"
                                   "ends = {}\nrecompute = \"{}\"",
                                   asked.schedule, asked.chunks, asked.stages, asked.ends, asked.recompute),
                       asked.micro, "f32", 8, steps});
}

CompileOptions options_for(const Experiment& experiment) {
    CompileOptions options;
    if (experiment.schedule) options.schedule = &*experiment.schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    return options;
}

test::Lowered compiled(const Asked& asked) {
    const auto experiment = made(asked);
    show_gradients(experiment->train());
    return test::compile(experiment->train(), experiment->mesh, options_for(*experiment));
}

test::Ran run(const Asked& asked) { return run_drawn(compiled(asked), steps, vocab); }

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

namespace {

/// Every op of B, and W without what runs once a step where there are many micro-batches.
void check_same_fragments(const Plan& one, const Plan& many) {
    for (size_t r = 0; r < one.classes.size(); ++r) {
        const auto ops = [&](Fragment::Kind kind, const Plan& plan) {
            return test::ops_in(kind, plan.classes[r], plan.program);
        };
        CHECK(ops(Fragment::Kind::backward, one) == ops(Fragment::Kind::backward, many));
        const std::vector<std::string> weights = ops(Fragment::Kind::weight, one);
        CHECK(weights.size() > 8);
        for (const std::string& op : ops(Fragment::Kind::weight, many))
            CHECK(std::find(weights.begin(), weights.end(), op) != weights.end());
    }
}

}  // namespace

TEST_CASE("with one micro-batch weight gradients run in the slots that are drawn for them", "[pipelines]") {
    for (const char* model : {"gpt", "llama", "qwen2"})
        for (const auto& [schedule, chunks] : {std::pair<const char*, int64_t>{"zb_h1", 1}, {"zbv", 2}})
            for (int64_t pp : {2, 4})
                for (const char* recompute : {"", "full", "selective"}) {
                    if (pp == 4 && *recompute) continue;
                    Asked asked{model, pp, 1, schedule, chunks};
                    asked.micro = 1;
                    asked.recompute = recompute;
                    INFO(title(asked) << ", recompute " << recompute);
                    const auto experiment = made(asked);
                    const test::Lowered lowered = compiled(*experiment);
                    const Plan& plan = lowered.plan;
                    const Picture drawn = picture(plan, false, 0);
                    for (size_t r = 0; r < plan.classes.size(); ++r) {
                        RankSchedule shown;
                        for (const Slot& slot : drawn.timeline.ranks[r]) shown.order.push_back(slot.fragment);
                        CHECK(test::executed(plan.classes[r], plan.program).text() == shown.text());
                        CHECK(drawn.timeline.peak[r] == chunks);  // of p, or 2p, no more than there are
                        CHECK(drawn.memory[r].peak == plan.classes[r].persistent_bytes + plan.classes[r].scratch_floor);
                    }
                    // Down the stages and up again, then the first stage's W.
                    CHECK(drawn.timeline.makespan == 2 * pp * chunks + (chunks == 1 ? 1 : 2));
                    asked.micro = 4;
                    check_same_fragments(plan, compiled(asked).plan);
                    test::Verifying how;
                    how.contents = [](const Value& value, int64_t step) { return draw(value, step, vocab); };
                    const VerifyReport report = test::verify_plan(experiment->train(), lowered, how);
                    CHECK((report.passed() && report.gradients >= 0));
                }
}

TEST_CASE("evaluation runs the schedule's forward fragments on the training's params", "[pipelines]") {
    for (const auto& [schedule, chunks] : schedules) {
        INFO(schedule);
        const auto experiment = made({"gpt", 2, 1, schedule, chunks});
        test::Lowered lowered;
        const CompileOptions options = options_for(*experiment);
        const Plan train =
            plan_of(distribute(experiment->train(), experiment->mesh), experiment->mesh, lowered.persistent, options);
        lowered.plan = plan_of(distribute(experiment->find("eval")->program, experiment->mesh), experiment->mesh,
                               lowered.persistent, options);
        check(lowered.plan, options.contracts);
        const auto one = made({"gpt"});
        const test::Ran alone = run_drawn(test::compile(one->find("eval")->program, one->mesh), 1, vocab);
        CHECK(loss_of(run_drawn(lowered, 1, vocab).values) == Approx(loss_of(alone.values)).epsilon(1e-6));
    }
}
