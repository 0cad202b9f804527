// What cannot be laid out as asked is an error that names value, dim, axis, bytes, both causes and the remedy.
#include <catch2/catch.hpp>

#include "compile/pipeline.h"
#include "layout_models.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;
const Placement R = Placement::replicated();
const Mesh tp2({{"tp", 2}});

std::string refusal(const Program& program, const Mesh& mesh, const PropagateOptions& redistribution = {}) {
    CompileOptions options;
    options.redistribution = redistribution;
    try {
        distribute(program, mesh, options);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

using Catch::Contains;

TEST_CASE("a mark on a dim that the axis does not divide") {
    Model m = mlp(6, 4, 12);
    m.store("x", "dp", S(0), "data");
    CHECK_THAT(refusal(m.program, Mesh({{"dp", 4}})),
               Contains("data, strategy.lua:1: cannot split x f32[batch=6,embed=4] (model.lua:1) over dp=4") &&
                   Contains("dim 0 (batch) of size 6 is not a multiple of 4") && Contains("choose a size"));
    CHECK(refusal(m.program, Mesh({{"dp", 3}})).empty());
    // Unknown axes and axes of size 1 are skipped; so is an optional mark.
    CHECK(refusal(m.program, Mesh({{"dp", 1}, {"tp", 5}})).empty());
    Program optional = mlp(6, 4, 12).program;
    optional.store(0, "dp", S(0), {"data", "strategy.lua", 1, 0}, true);
    CHECK(refusal(optional, Mesh({{"dp", 4}})).empty());
    // Two axes on one dim.
    Model two = mlp(6, 4, 12);
    two.store("x", "dp", S(0));
    two.store("x", "tp", S(0));
    CHECK_THAT(refusal(two.program, Mesh({{"dp", 2}, {"tp", 2}})),
               Contains("over tp=2") && Contains("not a multiple of 4") && Contains("also split over dp=2"));
}

TEST_CASE("micro-batches that do not divide the batch, and a mark on micro") {
    Model m = mlp(6, 4, 12);
    m.split_names({{"batch", "dp"}});
    CHECK_THAT(refusal(m.program, Mesh({{"dp", 2}}).with_microbatches(2)),
               Contains("cannot split x f32[batch=6,embed=4] (model.lua:1) into 2 micro-batches and dp=2") &&
                   Contains("not a multiple of 4"));
    m.store("up.w", "micro", S(0));
    CHECK_THAT(refusal(m.program, Mesh({{"dp", 1}}).with_microbatches(2)),
               Contains("cannot mark") && Contains("micro"));
}

TEST_CASE("a mark over the axis of a pipeline") {
    Model m = mlp(4, 4, 12);
    m.program.pipeline({"pp", "1f1b", 1, {"pipeline", "strategy.lua", 2, 0}});
    m.program.stage("mlp", 0, {});
    m.program.stage("", 1, {});
    Program other = m.program;
    m.store("up.w", "pp", S(1), "expert");
    CHECK_THAT(refusal(m.program, Mesh({{"pp", 2}})), Contains("expert, strategy.lua:1: cannot mark up.w") &&
                                                          Contains("S(1) over pp=2: the pipeline (pipeline, "
                                                                   "strategy.lua:2) uses this axis") &&
                                                          Contains("give the two strategies different axes"));
    CHECK(refusal(m.program, Mesh({{"pp", 1}})).empty());
    other.store(0, "pp", R, {"other", "strategy.lua", 3, 0});
    CHECK_THAT(refusal(other, Mesh({{"pp", 2}})), !Contains("uses this axis"));
}

TEST_CASE("heads that the axis does not divide are named where the reshape makes them") {
    Model m = block(4, 4, 3, 4, 12, false);
    m.split_names({{"heads", "tp"}});
    CHECK_THAT(refusal(m.program, tp2), Contains("reshape") && Contains("over tp=2") && Contains("heads of size 3") &&
                                            Contains("by tp, strategy.lua:1") && Contains("model.lua"));
}

TEST_CASE("a param at rest cannot be partial") {
    Model m = mlp(4, 4, 12);
    m.store("up.w", "tp", Placement::partial(ReduceOp::sum));
    CHECK_THAT(refusal(m.program, tp2), Contains("cannot store up.w") && Contains("P(sum) over tp"));
}

TEST_CASE("a gather that no mark asks for is an error when forbidden or over budget, with bytes and both causes") {
    Model m;
    const ValueId x = m.input("x", {4, 6}, {"batch", "embed"});
    m.build.result("y", m.op("softmax", {x}), {});
    m.store("x", "tp", S(1), "tensor");
    CHECK(refusal(m.program, tp2).empty());
    CHECK_THAT(refusal(m.program, tp2, {-1, true}),
               Contains("model.lua:2") && Contains("softmax") && Contains("x f32[batch=4,embed=6]") &&
                   Contains("all_gather over tp sends 48 B") && Contains("by tensor, strategy.lua:1") &&
                   Contains("softmax reads dim 1 (embed) whole"));
    CHECK(refusal(m.program, tp2, {48, false}).empty());
    CHECK_THAT(refusal(m.program, tp2, {47, false}), Contains("over the budget of 47 B"));
}

TEST_CASE("two operands that disagree: the bytes and the strategies of both are shown") {
    Model m;
    const ValueId a = m.input("a", {4, 6}, {"batch", "embed"});
    const ValueId b = m.input("b", {4, 6}, {"batch", "embed"});
    m.build.result("y", m.op("mul", {a, b}), {});
    m.store("a", "tp", S(0), "first");
    m.store("b", "tp", S(1), "second");
    CHECK_THAT(refusal(m.program, tp2, {-1, true}), Contains("all_to_all over tp sends 24 B") &&
                                                        Contains("by first, strategy.lua:1") &&
                                                        Contains("by second, strategy.lua:1"));
}

TEST_CASE("what a mark asks for is no implicit gather") {
    Model m = mlp(8, 4, 12);
    m.split_names({{"batch", "dp"}});
    for (ValueId p : m.program.params()) {
        m.store(m.program.value(p).name, "dp", S(0));
        m.use(m.program.value(p).name, "dp", R);
    }
    CHECK(refusal(m.program, Mesh({{"dp", 2}}), {-1, true}).empty());
    // States split alone: updated params are gathered to where they rest.
    Model zero = mlp(8, 4, 12);
    zero.split_names({{"batch", "dp"}});
    for (ValueId p : zero.program.params()) zero.store(zero.program.value(p).name + ".m", "dp", S(0));
    for (ValueId p : zero.program.params()) zero.store(zero.program.value(p).name + ".v", "dp", S(0));
    CHECK(refusal(zero.program, Mesh({{"dp", 2}}), {-1, true}).empty());
}

TEST_CASE("a sum over all micro-batches cannot be used inside the loop over them") {
    Model m;
    const ValueId x = m.input("x", {4, 6}, {"batch", "embed"});
    const ValueId total = m.op("sum", {x}, {{"dims", std::vector<int64_t>{0}}});
    m.build.result("y", m.op("div", {x, total}), {});
    CHECK(refusal(m.program, Mesh({{"dp", 2}})).empty());
    CHECK_THAT(refusal(m.program, Mesh({{"dp", 2}}).with_microbatches(2)),
               Contains("model.lua:3") && Contains("div") && Contains("a sum over all 2 micro-batches") &&
                   Contains("x f32[batch=4,embed=6]") && Contains("use one micro-batch"));
}

TEST_CASE("an op that needs the whole batch cannot run in micro-batches") {
    Model m;
    const ValueId x = m.input("x", {6, 4}, {"embed", "batch"});
    m.build.result("y", m.op("softmax", {x}), {});
    CHECK_THAT(refusal(m.program, Mesh({{"dp", 2}}).with_microbatches(2)),
               Contains("softmax") && Contains("one micro-batch at a time") && Contains("reads dim 1 (batch) whole"));
}
