// Whose collectives get a thread of their own.
#include "run/overlap.h"

#include <catch2/catch.hpp>

#include "layout_models.h"
#include "plan_ranks.h"

using namespace orrery;
using namespace orrery::test;

TEST_CASE("overlap: processors are spare where a rank has more than threads") {
    Settings settings;
    settings.threads_per_rank = 1;
    Job job;
    job.local_ranks = 1 << 20;
    CHECK_FALSE(has_spare_processors(settings, job));  // shared by too many
    job.processors = 1;
    CHECK_FALSE(has_spare_processors(settings, job));
    settings.threads_per_rank = 1 << 20;
    job.processors = 2;
    CHECK_FALSE(has_spare_processors(settings, job));
}

TEST_CASE("overlap: gradients leave while the backward pass goes on, a forward sum is waited for at once") {
    Model training = mlp(8, 4, 12);
    training.split_names({{"batch", "dp"}});
    CHECK(has_kernels_beside(compile(training.program, Mesh({{"dp", 2}})).plan, 0, "dp"));
    Program forward = mlp(8, 4, 12).program;
    std::erase_if(forward.ops, [](const Op& op) { return op.phase != Phase::forward; });
    Program eval;
    eval.results = forward.results;
    eval.values = forward.values;
    eval.ops = forward.ops;
    Model m;
    m.program = eval;
    m.split_names({{"mlp", "tp"}});
    const Plan plan = compile(m.program, Mesh({{"tp", 2}})).plan;
    CHECK(std::any_of(plan.classes[0].stream.begin(), plan.classes[0].stream.end(),
                      [](const Instruction& i) { return i.what == Do::all_reduce; }));
    CHECK_FALSE(has_kernels_beside(plan, 0, "tp"));
}
