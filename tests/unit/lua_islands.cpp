// Islands: a step is one island's, programs that take no batch are of all, and only these send over the islands' axis.
#include <algorithm>
#include <catch2/catch.hpp>

#include "compile/compile.h"
#include "ir/print.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "plan/opening.h"

using namespace orrery;

namespace {

const std::string local_sgd =
    "o.methods.local_sgd(p, { optimizer = o.optim.sgd { lr = 0.1, momentum = 0 }, every = 2 })\n";
const std::string islands = "o.strategy.islands { axis = 'site' }";

std::string toml(const std::string& mesh) {
    return "[train]\nsteps = 4\nsequences_per_step = 12\n[data]\ntokens_per_sequence = 4\nvocab = 5\n[mesh]\n" + mesh;
}

std::unique_ptr<Experiment> traced(const std::string& calls, const std::string& mesh, const std::string& strategies,
                                   const std::string& more = "") {
    FakeHost host(toml(mesh) + more);
    host.strategies = built_strategy;
    run_script_text(
        "local o = require 'orrery'\n"
        "local p = o.trace('t', { x = o.array('f32', { {'batch', 12}, {'embed', 4} }) }, function(batch)\n"
        "  local y = o.scope('a', function() return batch.x * o.param { name = 'w', shape = { {'embed', 4} } } end)\n"
        "  y = o.scope('b', function() return y * o.param { name = 'w', shape = { {'embed', 4} } } end)\n"
        "  return (y * y):sum(), o.constant(4)\nend)\n" +
            calls + "p:parallel { " + strategies + " }\np:compile()",
        "a.lua", in_source("scripts"), host);
    return std::move(host.experiment);
}

std::string refused(const std::string& calls, const std::string& mesh, const std::string& strategies,
                    const std::string& more = "") {
    try {
        traced(calls, mesh, strategies, more);
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing is refused";
}

/// Bytes of the messages over the axis `site` of a rank's stream.
int64_t bytes_between_islands(const Plan& plan) {
    int64_t bytes = 0;
    const AxisId site = plan.mesh.find("site").value();
    for (const Instruction& i : plan.classes.at(0).stream)
        if (i.axis != none && std::ranges::count(plan.mesh.parts(i.axis), site) > 0)
            bytes += i.operands[0].type.bytes();
    return bytes;
}

const Value& array(const CompiledProgram& program, const std::string& name) {
    return program.plan.program.value(program.plan.program.find(name).value());
}

}  // namespace

TEST_CASE("islands exchange nothing in a step, and a mean is one all-reduce of each array") {
    for (const char* mesh : {"site = 2\n", "site = 2\ndp = 2\n", "dp = 3\nsite = 4\n"}) {
        const auto made = traced(local_sgd, mesh, islands + ", o.strategy.data { axis = 'dp' }");
        const Compiled compiled = compile_training(*made, {});
        const CompiledProgram *step = compiled.find("inner"), *mean = compiled.find("mean");
        REQUIRE(step);
        REQUIRE(mean);
        CHECK(bytes_between_islands(step->plan) == 0);
        // two params of four elements, sums of counts and of losses, two maxima, the status word
        CHECK(bytes_between_islands(mean->plan) == 2 * 4 * 4 + 4 * 4 + 4);
    }
}

TEST_CASE("each island has a slice of each param and state, and its part of the batch") {
    const auto made = traced(local_sgd, "site = 2\ndp = 3\n", islands + ", o.strategy.data { axis = 'dp', zero = 3 }");
    const Compiled compiled = compile_training(*made, {});
    CHECK(compiled.sizes.full() == 12);
    for (const CompiledProgram& program : compiled.programs) {
        const Mesh& mesh = program.plan.mesh;
        CHECK(array(program, "a.w").type.shape == Shape{2, 4});
        CHECK(array(program, "a.w").dims == std::vector<std::string>{"site", "embed"});
        CHECK(array(program, "a.w").layout.text(mesh).find("site:S(0)") == 0);
    }
    const CompiledProgram& step = *compiled.find("inner");
    CHECK(array(step, "islands.count").type.shape == Shape{2});
    CHECK(array(step, "x").type.shape == Shape{12, 4});
    for (int64_t rank = 0; rank < 6; ++rank)
        CHECK(array(step, "x").layout.offset({12, 4}, step.plan.mesh, rank) == Shape{2 * rank, 0});
}

TEST_CASE("layouts of whole arrays are those of an island's, one dim further") {
    const auto made = traced(local_sgd, "site = 2\ndp = 2\n", islands + ", o.strategy.data { axis = 'dp', zero = 3 }");
    const Compiled compiled = compile_training(*made, {});
    const CompiledProgram& mean = *compiled.find("mean");
    CHECK(array(mean, "b.w").layout.text(mean.plan.mesh) == "site:S(0) dp:S(1)");
    CHECK(array(*compiled.find("inner"), "b.w").layout == array(mean, "b.w").layout);
    CHECK(array(*compiled.find("eval"), "b.w").layout == array(mean, "b.w").layout);
}

TEST_CASE("what islands cannot have is refused") {
    CHECK(refused(local_sgd, "site = 2\n", islands) == "nothing is refused");
    CHECK(has(refused(local_sgd, "site = 5\n", islands), "12 samples a step are not divisible by 5 islands"));
    CHECK(has(refused(local_sgd, "site = 2\n", islands + ", o.strategy.data { axis = 'site' }"),
              "the axis site is of islands: x f32[batch=6,embed=4]"));
    CHECK(has(refused(local_sgd, "site = 2\n", islands + ", o.strategy.data { axis = 'site', zero = 1 }"),
              "the axis site is of islands"));
    CHECK(has(refused(local_sgd, "site = 2\n",
                      islands + ", require('orrery.strategy').define('cut', {}, function(program, mesh)\n"
                                "  program:stage('a', 0) program:stage('b', 1) program:pipeline { axis = 'site', "
                                "schedule = '1f1b' } end) {}"),
              "the axis site is of islands and of pipeline stages"));
    CHECK(has(refused("p:train_with(o.optim.sgd {})\n", "site = 2\n", islands), "the islands over site never meet"));
    const auto outer = [](const std::string& body) {
        return "p:train_with(o.optim.sgd {})\np:also('O', function(u) " + body + " end)\np:round 'step O'\n";
    };
    CHECK(
        has(refused(outer("u:set(o.state { name = 'n', shape = {} }, o.step()) for p in u:params() do u:set(p, p * 1) "
                          "end"),
                    "site = 2\n", islands),
            "n f32[] lacks the dim of the islands"));
    CHECK(has(refused(outer("for p in u:params() do u:set(p, p - p:grad():sum('site')) end"), "site = 2\n", islands),
              "no dim \"site\""));
}

namespace {

const std::string streaming =
    "o.methods.streaming(p, { optimizer = o.optim.sgd { lr = 0.1, momentum = 0 }, every = 4, fragments = 2, tau = 2 "
    "})\n";

/// Programs S and R with these bodies for each param p, and its state `sent` if they name it.
std::string sending(const std::string& send, const std::string& receive, const std::string& round = "step S step R") {
    const auto each = [](const std::string& body) {
        return "for p in u:params() do " +
               std::string(body.find("sent") != body.npos ? "local sent = u:state(p, 'sent') " : "") + body +
               " end end)\n";
    };
    return "p:train_with(o.optim.sgd {})\np:also('S', function(u) " + each(send) + "p:also('R', function(u) " +
           each(receive) + "p:round '" + round + "'\n";
}

}  // namespace

TEST_CASE("messages that cross steps are the opening of the program that waits for them") {
    for (const char* mesh : {"site = 2\n", "site = 3\ndp = 2\n"}) {
        const auto made = traced(streaming, mesh, islands + ", o.strategy.data { axis = 'dp', zero = 3 }");
        const Compiled compiled = compile_training(*made, {});
        CHECK(compiled.round.text() ==
              "first inner*1 send1 inner*2 receive1 send2, then inner*2 receive2 send1 inner*2 "
              "receive1 send2");
        CHECK(bytes_between_islands(compiled.find("inner")->plan) == 0);
        CHECK(bytes_between_islands(compiled.find("send1")->plan) == 0);
        const int64_t param = 4 * 4 / made->mesh.size("dp");
        std::vector<const Plan*> plans = compiled.plans();
        for (const char* name : {"receive1", "receive2"}) {
            const Plan& plan = compiled.find(name)->plan;
            CHECK(bytes_between_islands(plan) == param + 4 + 4 + 4);  // and count, loss, status word
            const RankClass& ranks = plan.classes[0];
            const int end = opening(plan.program, ranks);
            int64_t messages = 0;
            for (int i = 0; i < end; ++i) messages += ranks.stream[i].opcode == Opcode::all_reduce;
            CHECK(messages == 3);
            CHECK(opening(compiled.find("inner")->plan.program, compiled.find("inner")->plan.classes[0]) == 0);
            for (int i = 0; i < end; ++i)
                for (const int wait : ranks.stream[i].waits) CHECK(ranks.stream[wait].opcode == Opcode::kernel);
        }
        int64_t shared = 0, own = 0;
        for (const Plan* plan : plans) {
            const RankClass& c = plan->classes[0];
            opening(plan->program, c) > 0 ? own += c.scratch_bytes : shared = std::max(shared, c.scratch_bytes);
        }
        CHECK(own > 0);
        CHECK(scratch_places(plans, 0).back() >= shared + own);
    }
}

TEST_CASE("what sends and waits wrongly is refused") {
    const auto says = [](const std::string& calls, const std::string& what) {
        const std::string found = refused(calls, "site = 2\n", islands);
        CAPTURE(found);
        has(found, what);
    };
    const std::string send = "u:send(sent, p)", arrived = "u:set(p, u:arrived(sent) + p * 0)", own = "u:set(p, p * 1)";
    says(sending(send, arrived), "nothing is refused");
    says(sending(send, arrived, "step R S"), "R waits for what nothing has started");
    says(sending(send, arrived, "(step S)*2 R"), "S starts its messages again before R has waited");
    says(sending(send, arrived, "step S R S, then step"), "no program waits for what S has started");
    says(sending(own, arrived), "program \"R\" waits for a.w.sent, which nothing has started");
    says(sending(send, own), "program \"S\" sends a.w.sent, but no program waits for it");
    says(sending(send, send + " " + arrived), "a.w.sent is sent by two programs, \"S\" and \"R\"");
    says(sending(send + " " + arrived, own), "program \"S\" waits for a.w.sent, which it sends itself");
    says(sending(send, "u:set(p, sent * 1)"), "a.w.sent is sent by program \"S\"");
    says(sending(send, arrived + " u:set(u:state(p, 'x'), sent * 1)"), "can only be read by update:arrived");
    says(sending("u:send(p, p)", own), "is not a state of update:state or o.state");
    says(
        "p:train_with(o.optim.sgd {})\np:also('O', function(u) for p in u:params() do u:send(u:state(p, 'sent'), "
        "p:grad()) end end)\np:round 'step O'\n",
        "islands send to each other in programs that take no batch");
    CHECK(has(refused(sending(send, arrived), "dp = 2\n", "o.strategy.data {}"),
              "islands send to each other in programs that take no batch"));
}
