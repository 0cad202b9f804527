// Islands: a step is one island's, programs that take no batch are of all, and only these send over the islands' axis.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "collective/forwarding_communicator.h"
#include "compile/compile.h"
#include "compile/one_island.h"
#include "interpreter.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "lua/built_strategy.h"
#include "lua/fake_host.h"
#include "lua/script.h"
#include "plan/check/check.h"
#include "plan/opening.h"
#include "plan_ranks.h"

using namespace orrery;

namespace {

const std::string local_sgd =
    "o.methods.local_sgd(p, { optimizer = o.optim.sgd { lr = 0.1, momentum = 0 }, every = 2 })\n";
const std::string islands = "o.strategy.islands { axis = 'site' }";
const std::string vectors =
    "  local y = o.scope('a', function() return batch.x * o.param { name = 'w', shape = { {'embed', 4} } } end)\n"
    "  y = o.scope('b', function() return y * o.param { name = 'w', shape = { {'embed', 4} } } end)\n";
const std::string matrices =  // of 1,024 elements
    "  local function layer(name, x, from, to)\n"
    "    return o.scope(name, function() return x:matmul(o.param { name = 'w', shape = { from, to } }) end)\n  end\n"
    "  local y = layer('a', batch.x, {'embed', 4}, {'mlp', 256})\n"
    "  y = layer('b', y, {'mlp', 256}, {'embed', 4})\n";

std::string toml(const std::string& mesh) {
    return "[train]\nsteps = 4\nsequences_per_step = 12\n[data]\ntokens_per_sequence = 4\nvocab = 5\n[mesh]\n" + mesh;
}

std::unique_ptr<Experiment> traced(const std::string& calls, const std::string& mesh, const std::string& strategies,
                                   const std::string& more = "", const std::string& layers = vectors) {
    FakeHost host(toml(mesh) + more);
    host.strategies = built_strategy;
    run_script_text(
        "local o = require 'orrery'\n"
        "local p = o.trace('t', { x = o.array('f32', { {'batch', 12}, {'embed', 4} }) }, function(batch)\n" +
            layers + "  return (y * y):sum(), o.constant(4)\nend)\n" + calls + "p:parallel { " + strategies +
            " }\np:compile()",
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

/// Adds up what communicators over axes with `site` in them have counted when they end, those of openings among them.
class Counting final : public ForwardingCommunicator {
public:
    Counting(std::unique_ptr<Communicator> inner, std::atomic<int64_t>& bytes)
        : ForwardingCommunicator(std::move(inner)), bytes_(bytes) {}
    ~Counting() override {
        if (group().axis.find("site") != std::string::npos) bytes_ += traffic().bytes_sent;
    }

private:
    std::atomic<int64_t>& bytes_;
};

class CountingTransport final : public Transport {
public:
    explicit CountingTransport(std::atomic<int64_t>& bytes) : inner_(test::threads_transport()), bytes_(bytes) {}
    TransportContract contract() const override { return inner_->contract(); }
    std::unique_ptr<Communicator> make(const Group& group, Rendezvous& rendezvous, std::span<const Memory> arenas,
                                       std::chrono::milliseconds timeout) override {
        return std::make_unique<Counting>(inner_->make(group, rendezvous, arenas, timeout), bytes_);
    }

private:
    const std::unique_ptr<Transport> inner_;
    std::atomic<int64_t>& bytes_;
};

/// Bytes that the communicators of all ranks have counted over axes with `site` in them, and those of the plan: P ranks
/// send 2 S (P-1) for an all-reduce of S bytes, and S P (P-1) for an all-gather of S bytes of each.
std::pair<double, double> counted_between_islands(const Compiled& compiled, const std::string& program) {
    const test::Lowered lowered{compiled.persistent, compiled.find(program)->plan};
    const Mesh& mesh = lowered.plan.mesh;
    test::Running how;
    how.steps = 2;
    how.contents = [](const Value& value, int64_t) {  // the same on all islands, as results of replicas are compared
        std::vector<char> whole(static_cast<size_t>(value.type.bytes()));
        const float one = 1;
        for (size_t at = 0; at < whole.size(); at += sizeof one) std::memcpy(whole.data() + at, &one, sizeof one);
        return whole;
    };
    std::atomic<int64_t> sent = 0;
    how.transport = [&] { return std::make_unique<CountingTransport>(sent); };
    test::run_steps(lowered, how);
    std::pair<double, double> bytes{sent, 0};
    const auto between = [&](AxisId axis) { return std::ranges::count(mesh.parts(axis), *mesh.find("site")) > 0; };
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
        for (const Instruction& i : lowered.plan.class_of(rank).stream) {
            if (i.axis == none || !between(i.axis)) continue;
            REQUIRE((i.opcode == Opcode::all_reduce || i.opcode == Opcode::all_gather));
            const auto members = static_cast<double>(mesh.size(i.axis));
            const double times = i.opcode == Opcode::all_gather ? 1 : 2 / members;
            for (size_t in = i.operands.size() > 2 ? 2 : 0; in + 1 < i.operands.size(); in += 2)
                bytes.second += times * how.steps * i.operands[in].type.bytes() * (members - 1);
        }
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

TEST_CASE("communicators send nothing between islands in a step, and 2 S (n-1)/n a rank where islands meet") {
    for (const char* mesh : {"site = 4\n", "site = 2\ndp = 2\n", "dp = 2\nsite = 3\n"})
        for (const char* zero : {"0", "3"})
            for (const char* method : {"local_sgd", "diloco"}) {
                const std::string of = method;
                const auto made =
                    traced("o.methods." + of + "(p, { optimizer = o.optim.sgd { lr = 0.1 }, every = 2 })\n", mesh,
                           islands + ", o.strategy.data { axis = 'dp', zero = " + zero + " }");
                const Compiled compiled = compile_training(*made, {});
                CHECK(counted_between_islands(compiled, "inner") == std::pair(0.0, 0.0));
                const auto [counted, planned] = counted_between_islands(compiled, of == "diloco" ? "outer" : "mean");
                CHECK(counted == Approx(planned).epsilon(1e-12));
                // Of all ranks in two rounds: two params of 4 f32, of which ZeRO-3 has a part on each rank; sums of
                // counts and losses, two maxima; the status word.
                const double n = static_cast<double>(made->mesh.size("site")), dp = made->mesh.ranks() / n;
                CHECK(counted == 2 * 2 * (n - 1) * (32 * (*zero == '3' ? 1 : dp) + 20 * dp));
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

TEST_CASE("the plan of one island has its slices and its part of the batch") {
    const auto made = traced(local_sgd, "site = 2\ndp = 2\n", islands + ", o.strategy.data { axis = 'dp', zero = 3 }");
    const Compiled compiled = compile_training(*made, {});
    const CompiledProgram one{{}, one_island(compiled.find("inner")->plan, compiled.islands)};
    const Mesh& mesh = one.plan.mesh;
    CHECK(array(one, "a.w").type.shape == Shape{4});
    CHECK(array(one, "a.w").layout.text(mesh) == "site:R dp:S(0)");
    CHECK(array(one, "islands.count").type.shape.empty());
    CHECK(array(one, "x").type.shape == Shape{6, 4});
    CHECK(array(one, "x").layout.offset({6, 4}, mesh, 3) == Shape{3, 0});
    for (const Operand& place : one.plan.classes.at(0).places) {
        const Value& value = one.plan.program.value(place.value);
        CHECK(place.type.shape == value.layout.local_shape(value.type.shape, mesh));
    }
}

TEST_CASE("layouts of whole arrays are those of an island's, one dim further") {
    const auto made = traced(local_sgd, "site = 2\ndp = 2\n", islands + ", o.strategy.data { axis = 'dp', zero = 3 }");
    const Compiled compiled = compile_training(*made, {});
    const CompiledProgram& mean = *compiled.find("mean");
    CHECK(array(mean, "b.w").layout.text(mean.plan.mesh) == "site:S(0) dp:S(1)");
    CHECK(array(*compiled.find("inner"), "b.w").layout == array(mean, "b.w").layout);
    CHECK(array(*compiled.find("eval"), "b.w").layout == array(mean, "b.w").layout);
}

TEST_CASE("gossip without gradients keeps the mean, and a ring of four differs from it by a third after each step") {
    const auto made = traced("o.methods.gossip(p, { optimizer = o.optim.sgd {} })\n", "site = 4\n", islands);
    const Program& mix = made->find("mix")->program;
    std::map<std::string, test::Array> params;
    const auto fill = [&](const Value& value, ValueId id) {
        const auto found = params.find(value.name);
        return found == params.end() ? test::fill_positive(value, id) : found->second;
    };
    const auto mean_and_distance = [](const test::Array& array) {
        const auto [islands, size] = std::pair(array.type.shape[0], array.type.shape[1]);
        std::vector<double> means(static_cast<size_t>(size));
        double square = 0;
        for (int64_t i = 0; i < islands * size; ++i) means[static_cast<size_t>(i % size)] += array.f64()[i] / 4;
        for (int64_t i = 0; i < islands * size; ++i)
            square += std::pow(array.f64()[i] - means[static_cast<size_t>(i % size)], 2);
        return std::pair(means, std::sqrt(square));
    };
    for (int step = 0; step < 3; ++step) {
        const std::vector<test::Array> values = test::evaluate(mix, fill);
        for (const char* name : {"a.w", "b.w"}) {
            const ValueId id = mix.find(name).value();
            const auto update = std::ranges::find(mix.updates, id, &Update::target);
            REQUIRE(update != mix.updates.end());
            const auto [means, distance] = mean_and_distance(values[static_cast<size_t>(id)]);
            const auto [after, left] = mean_and_distance(values[static_cast<size_t>(update->value)]);
            REQUIRE(distance > 0.01);
            CHECK(left == Approx(distance / 3).epsilon(1e-12));
            for (size_t i = 0; i < means.size(); ++i) CHECK(after[i] == Approx(means[i]).epsilon(1e-12));
            params[name] = values[static_cast<size_t>(update->value)];
        }
    }
}

TEST_CASE("diloco with an optimizer for the outer step: SGD with Nesterov momentum gives its own outer step") {
    const std::string inner = "o.methods.diloco(p, { optimizer = o.optim.sgd { momentum = 0 }, every = 2";
    const auto ends = [&](const std::string& outer, const std::vector<std::string>& programs) {
        const auto made = traced(inner + outer + " })\n", "site = 3\n", islands);
        std::map<std::string, test::Array> arrays;  // by name without "_momentum" and ".m"
        const auto same = [](std::string name) {
            for (const char* word : {"_momentum", ".m"})
                if (name.ends_with(word)) return name.substr(0, name.size() - std::strlen(word)) + ".moved";
            return name;
        };
        for (int round = 0; round < 3; ++round)
            for (const std::string& name : programs) {
                const Program& program = made->find(name)->program;
                const auto values = test::evaluate(program, [&](const Value& value, ValueId) {
                    const auto found = arrays.find(same(value.name));
                    const auto id = static_cast<ValueId>(same(value.name).size() + value.name.front());
                    return found == arrays.end() ? test::fill_positive(value, id) : found->second;
                });
                for (const Update& update : program.updates)
                    if (program.value(update.target).type.count() == 12)  // the counts of the first round remain
                        arrays[same(program.value(update.target).name)] = values[static_cast<size_t>(update.value)];
            }
        return arrays;
    };
    const auto own = ends(", lr = 0.6, momentum = 0.8", {"outer"});
    const auto given = ends(", outer = o.optim.sgd { name = 'outer', lr = 0.6, momentum = 0.8, nesterov = true }",
                            {"back", "outer", "keep"});
    for (const char* name : {"a.w", "b.w", "a.w.outer", "b.w.outer"}) {
        REQUIRE(own.at(name).type.count() == 12);
        for (int64_t i = 0; i < 12; ++i) CHECK(given.at(name).f64()[i] == Approx(own.at(name).f64()[i]).epsilon(1e-12));
    }
    CHECK(has(refused(inner + ", lr = 1, outer = o.optim.sgd {} })\n", "site = 2\n", islands),
              "lr and momentum have no effect with outer"));
    CHECK(has(
        refused("o.methods.diloco(p, { optimizer = o.optim.sgd {}, outer = o.optim.sgd {} })\n", "site = 2\n", islands),
        "two optimizers of the round own the state a.w.m"));
    CHECK(has(refused("p:train_with(o.optim.sgd { momentum = 0, nesterov = true })\n", "site = 2\n", islands),
              "nesterov needs a momentum above 0"));
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
    CHECK(has(refused("o.methods.local_sgd(p, { optimizer = function(u) u:loss_scale() for p in u:params() do "
                      "u:set(p, p - p:grad()) end end })\n",
                      "site = 2\n", islands),
              "read update:island_count(), and set nothing where it is 0"));
    CHECK(has(refused("local n = 0\no.methods.diloco(p, { optimizer = function(u) n = n + 1 for p in u:params() do "
                      "u:set(p, p - p:grad() * n) end end })\n",
                      "site = 2\n", islands),
              "is not deterministic"));
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
            // Each message is waited for: that a later one over other communicators is complete says nothing of it.
            std::set<int> waited;
            for (int i = end; i < std::ssize(ranks.stream); ++i)
                for (const int wait : ranks.stream[i].waits) waited.insert(wait);
            for (int i = 0; i < end; ++i)
                if (ranks.stream[i].opcode == Opcode::all_reduce) CHECK(waited.contains(i));
            if (made->mesh.find("dp")) continue;
            Plan shared = plan;
            for (Instruction& i : shared.classes[0].stream) i.queue = std::min(i.queue, 1);
            CHECK_THROWS_WITH(check(shared, Network()),
                              Catch::Contains("of the opening, which has another communicator"));
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

TEST_CASE("the largest fragment is as small as whole layers allow") {
    // Sizes of layers, number of fragments, the number of each layer's fragment.
    const std::string rows[] = {"{ 1, 10, 10, 10, 10, 1 }, 4, '1 1 2 3 4 4'", "{ 1, 1, 1, 100 }, 3, '1 1 2 3'",
                                "{ 100, 1, 1, 1 }, 3, '1 2 2 3'", "{ 5, 5, 5 }, 1, '1 1 1'"};
    for (const std::string& row : rows)
        CHECK(refused("local function divided(sizes, count, asked)\n"
                      "  local i, found = 0, {}\n"
                      "  local of = o.islands.fragments({ params = function() return function()\n"
                      "    i = i + 1\n"
                      "    return sizes[i] and { name = 'layer.' .. i .. '.w', shape = { sizes[i] } }\n"
                      "  end end }, count)\n"
                      "  for l = 1, #sizes do found[l] = tostring(of['layer.' .. l .. '.w']) end\n"
                      "  if table.concat(found, ' ') ~= asked then error(table.concat(found, ' ')) end\n"
                      "end\ndivided(" +
                          row + ")\n" + local_sgd,
                      "site = 2\n", islands) == "nothing is refused");
}

TEST_CASE("what is sent while steps run is encoded once, and gathered in the opening") {
    for (const std::string codec : {"int4", "int8", "bf16"})
        for (const char* mesh : {"site = 2\n", "site = 3\n", "site = 3\ndp = 2\n"}) {
            INFO(codec << " on " << mesh);
            const auto made = traced(streaming, mesh,
                                     "o.strategy.islands { axis = 'site', codec = '" + codec +
                                         "' }, o.strategy.data { axis = 'dp', zero = 3 }",
                                     "", matrices);
            const Compiled compiled = compile_training(*made, {});
            const int64_t elements = 1024 / made->mesh.size("dp"), scales = 2 * elements / 256;
            for (const char* name : {"receive1", "receive2"}) {
                const Plan& plan = compiled.find(name)->plan;
                const int64_t code =
                    codec == "bf16" ? 2 * elements : (codec == "int4" ? elements / 2 : elements) + scales;
                CHECK(bytes_between_islands(plan) == code + 4 + 4 + 4);  // and count, loss, status word
                const RankClass& ranks = plan.classes[0];
                const int end = opening(plan.program, ranks);
                std::map<Opcode, int> messages;
                for (int i = 0; i < end; ++i) ++messages[ranks.stream[i].opcode];
                CHECK(messages[Opcode::all_reduce] == (codec == "bf16" ? 3 : 2));
                CHECK(messages[Opcode::all_gather] == (codec == "bf16" ? 0 : 2));
                for (int i = 0; i < end; ++i)
                    for (const int wait : ranks.stream[i].waits) CHECK(ranks.stream[wait].opcode == Opcode::kernel);
                for (const CodedMessage& coded : plan.program.coded) CHECK(coded.sum == none);
                const auto [counted, planned] = counted_between_islands(compiled, name);
                CHECK(counted == Approx(planned).epsilon(1e-12));
            }
        }
}

TEST_CASE("feedback of islands: what a coded sum lacks is in their errors, and a fragment has them when it is sent") {
    const std::string diloco = "o.methods.diloco(p, { optimizer = o.optim.sgd { momentum = 0 }, every = 2 })\n";
    const auto by_name = [](const Value& value, int64_t) {
        std::vector<char> whole(static_cast<size_t>(value.type.bytes()));
        for (size_t i = 0; i < whole.size() / 4; ++i) {
            const auto at = static_cast<float>(i + 3 * value.name.size() + value.name.front());
            const float x = value.name.starts_with("islands") ? 1 : std::sin(at);
            std::memcpy(&whole[4 * i], &x, 4);
        }
        return whole;
    };
    for (const std::string codec : {"int4", "sign"})
        for (const char* mesh : {"site = 2\n", "site = 3\n", "site = 2\ndp = 2\n"})
            for (const char* zero : {"1", "3"}) {
                INFO(codec << " on " << mesh << ", ZeRO-" << zero);
                const auto moved = [&](const std::string& method, const char* program, const std::string& how) {
                    const auto made = traced(method, mesh,
                                             "o.strategy.islands { axis = 'site', " + how +
                                                 " }, o.strategy.data { axis = 'dp', zero = " + zero + " }",
                                             "", matrices);
                    const Compiled compiled = compile_training(*made, {});
                    test::Running run;
                    run.contents = by_name;
                    return test::run_steps({compiled.persistent, compiled.find(program)->plan}, run).values;
                };
                const std::string coded = "codec = '" + codec + "', feedback = true";
                const auto plain = moved(diloco, "outer", ""), after = moved(diloco, "outer", coded);
                const std::vector<float>&exact = plain.at("a.w.outer_momentum"), &sum = after.at("a.w.outer_momentum");
                const std::vector<float>& left = after.at("a.w.error.site");
                const auto counted = [&] {
                    Value error;
                    error.name = "a.w.error.site";
                    error.type = {DType::f32, {static_cast<int64_t>(left.size())}};
                    return by_name(error, 0);
                }();
                REQUIRE(left.size() == exact.size());
                double farthest = 0, lost = 0;
                for (size_t i = 0; i < 1024; ++i) {
                    double errors = 0;
                    for (size_t at = i; at < left.size(); at += 1024) {
                        float before = 0;
                        std::memcpy(&before, &counted[4 * at], 4);
                        errors += before - left[at];
                    }
                    lost = std::max(lost, std::abs(errors));
                    farthest = std::max(farthest, std::abs(sum[i] - exact[i] - errors));
                }
                CHECK(farthest < 1e-5);
                CHECK(lost > 0.1);
                for (const float x : left) REQUIRE((codec != "sign" || x == 0));  // of blocks that are longer
                const auto sent = moved(streaming, "send1", ""), with = moved(streaming, "send1", coded);
                const std::vector<float>&x = sent.at("a.w.sent"), &y = with.at("a.w.sent");
                const std::vector<float>& owed = with.at("a.w.error.site");
                for (size_t i = 0; i < x.size(); ++i) REQUIRE(y[i] == Approx(x[i] + owed[i]).margin(1e-5));
            }
}

TEST_CASE("whole params go between islands with codecs that are near alone, and without feedback") {
    const auto compiled = [](const std::string& method, const std::string& how) -> std::string {
        try {
            compile_training(*traced("o.methods." + method + "(p, { optimizer = o.optim.sgd {}, every = 5 })\n",
                                     "site = 2\n", "o.strategy.islands { axis = 'site', " + how + " }", "", matrices),
                             {});
        } catch (const Error& error) {
            return error.what();
        }
        return "nothing is refused";
    };
    for (const std::string codec : {"sign", "top_k/100", "int2"}) {
        CHECK(has(compiled("local_sgd", "codec = '" + codec + "'"),
                  "params and other whole values over site cannot be sent as " + codec));
        CHECK(compiled("diloco", "codec = '" + codec + "', feedback = true") == "nothing is refused");
    }
    CHECK(has(compiled("local_sgd", "codec = 'sign'"), "int8, int4\n  or send what islands moved a param by"));
    CHECK(compiled("local_sgd", "codec = 'int8'") == "nothing is refused");
    CHECK(has(compiled("local_sgd", "codec = 'int8', feedback = true"), "whole values over site cannot have feedback"));
    CHECK(has(compiled("diloco", "feedback = true"), "strategy islands: feedback without a codec"));
    CHECK(has(compiled("diloco", "codec = 'bf16', feedback = true"), "the codec bf16 is summed without decoding"));
    CHECK(has(refused(local_sgd, "site = 1\n", "o.strategy.islands { axis = 'site', codec = 'int8', feedback = true }"),
              "feedback where nothing is sent, since the axis is of one rank"));
}

TEST_CASE("what encoding left out of what islands moved is added to what they send next, or refused") {
    // How islands sum in a program O, or send in S what R sums; a.w and b.w are matrices.
    const auto compiled = [](const std::string& calls) -> std::string {
        const std::string coded = "o.strategy.islands { axis = 'site', codec = 'int4', feedback = true }";
        try {
            const auto made = traced(calls, "site = 2\n", coded, "", matrices);
            for (const MarkedProgram& of : made->programs) CHECK(print(parse(print(of.program))) == print(of.program));
            compile_training(*made, {});
        } catch (const Error& error) {
            return error.what();
        }
        return "nothing is refused";
    };
    const auto summing = [](const std::string& x) {
        return "p:train_with(o.optim.sgd {})\np:also('O', function(u) for p in u:params() do local sum = (" + x +
               "):sum('site') u:moved(p, sum) u:set(p, sum + p * 0) end end)\np:round 'step*2 O'\n";
    };
    const std::string send = "u:send(sent, p + u:owed(p))";
    const std::string sum = "local sum = u:arrived(sent) u:moved(p, sum) u:set(p, p * 1)";
    CHECK(compiled(summing("p + u:owed(p)")) == "nothing is refused");
    CHECK(has(compiled(summing("p * 1")), "islands sum what they moved a.w by, without what encoding left out before"));
    CHECK(compiled(sending(send, sum)) == "nothing is refused");
    CHECK(has(compiled(sending("u:send(sent, p)", sum)), "add update:owed(a.w) to what they send"));
}

TEST_CASE("what sends and waits wrongly is refused") {
    const auto says = [](const std::string& calls, const std::string& what) {
        const std::string found = refused(calls, "site = 2\n", islands);
        CAPTURE(found);
        CHECK(has(found, what));
    };
    const std::string send = "u:send(sent, p)", arrived = "u:set(p, u:arrived(sent) + p * 0)", own = "u:set(p, p * 1)";
    says(sending(send, arrived), "nothing is refused");
    says(sending(send, arrived, "step R S"), "R waits for messages that S has not sent");
    says(sending(send, arrived, "(step S)*2 R"), "S sends again while its last messages are");
    says(sending(send, arrived, "step S R S, then step"), "S sends, but R never runs after it");
    says(sending(own, arrived), "program \"R\" waits for a.w.sent, which no program sends");
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
