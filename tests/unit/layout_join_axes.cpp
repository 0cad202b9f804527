// All-reduces and all-to-alls over several axes: which become one message, what it sends, and why others stay apart.
#include "compile/passes/join_axes.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "layout_models.h"
#include "plan/access.h"
#include "plan/lint.h"
#include "plan/print.h"
#include "plan/summary.h"
#include "plan_ranks.h"
#include "schedules.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const Mesh four({{"rep", 2}, {"dp", 2}});

/// The batch split over both axes.
Program replicas(bool clip = true) {
    Model m = mlp(24, 4, 12, true, clip);
    m.split_names({{"batch", "rep"}, {"batch", "dp"}});
    return m.program;
}

CompileOptions together(const Mesh& mesh) {
    CompileOptions options;
    options.transports = one_transport(mesh);
    return options;
}

/// "all_reduce rep+dp": 5.
std::map<std::string, int> messages(const Plan& plan) {
    std::map<std::string, int> counts;
    for (const Instruction& i : plan.classes.front().stream)
        if (i.axis != none) ++counts[std::string(name_of(i.opcode)) + " " + plan.mesh.axis(i.axis).name];
    return counts;
}

/// The axes of all-to-alls: "cp dp".
std::string exchanges(const Plan& plan) {
    const std::string_view kind = "all_to_all ";
    std::string text;
    for (const auto& [message, count] : messages(plan))
        if (message.starts_with(kind)) text += (text.empty() ? "" : " ") + message.substr(kind.size());
    return text;
}

/// x gain -> "before"; its square -> "after", which is weighed by place. Each axis splits a dim of the one and another
/// dim of the other. The sizes differ, so that blocks in a wrong order cannot look right.
struct Move {
    const char* axis;
    int from, to;
};
Program moved(const std::vector<Move>& moves) {
    Model m;
    const ValueId gain = m.param("gain", {24, 16}, {"one", "two"});
    const ValueId x = m.op("mul", {m.input("x", {8, 24, 16}, {"batch", "one", "two"}), gain});
    m.build.name(x, "before", {});
    const ValueId y = m.op("square", {x});
    m.build.name(y, "after", {});
    for (const Move& move : moves) {
        for (const char* value : {"x", "before"}) m.store(value, move.axis, Placement::split(move.from));
        m.store("after", move.axis, Placement::split(move.to));
    }
    const ValueId z = m.op("mul", {y, m.param("weight", {24, 16}, {"one", "two"})});
    m.train(m.op("sum", {z}, {{"dims", std::vector<int64_t>{0, 1, 2}}}));
    return m.program;
}

int64_t bytes_sent(const Plan& plan) {
    const PlanSummary told = summary(plan);
    int64_t bytes = 0;
    for (const auto& traffic : told.classes.front().traffic) bytes += traffic.bytes_sent;
    return bytes;
}

}  // namespace

TEST_CASE("axes together: names, sizes, groups") {
    const Mesh mesh({{"pp", 2}, {"one", 1}, {"dp", 3}, {"tp", 2}, {"micro", 4, true}});
    CHECK(mesh.axes().size() == 5);
    CHECK(mesh.ids() == 5 + 4);  // pp+dp, pp+tp, dp+tp, all three
    CHECK(mesh.ranks() == 12);
    CHECK_FALSE(mesh.find("pp+tp"));
    CHECK(mesh.over("dp") == mesh.find("dp"));
    CHECK_FALSE(mesh.over("tp+pp"));  // in the order of the mesh
    CHECK_FALSE(mesh.over("one+dp"));
    CHECK_FALSE(mesh.over("tp+micro"));
    const AxisId both = mesh.over("pp+tp").value();
    CHECK(mesh.joined(both));
    CHECK_FALSE(mesh.joined(*mesh.find("tp")));
    CHECK(mesh.together({*mesh.find("tp"), *mesh.find("pp")}) == both);
    CHECK(mesh.together({*mesh.find("tp")}) == mesh.find("tp"));
    CHECK(mesh.parts(both) == std::vector<AxisId>{0, 3});
    CHECK(mesh.size(both) == 4);
    CHECK(mesh.size("pp+tp") == 1);  // no axis of the user's
    CHECK(mesh.group(0, both) == std::vector<int64_t>{0, 1, 6, 7});
    CHECK(mesh.group(9, both) == std::vector<int64_t>{2, 3, 8, 9});
    for (AxisId axis = 0; axis < mesh.ids(); ++axis)
        for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
            const std::vector<int64_t> group = mesh.group(rank, axis);
            if (mesh.axis(axis).sequential) continue;
            CHECK(static_cast<int64_t>(group.size()) == mesh.size(axis));
            CHECK(std::is_sorted(group.begin(), group.end()));
            CHECK(group[static_cast<size_t>(mesh.member(rank, axis))] == rank);
            for (const int64_t other : group) CHECK(mesh.group(other, axis) == group);
        }
    CHECK(mesh.with_microbatches(1).ids() == 4 + 4);
    CHECK(Mesh({{"dp", 2}}).ids() == 1);
    CHECK_THROWS_WITH(Mesh({{"dp+tp", 2}}), Catch::Matchers::Contains("is reserved in names of axes"));
    std::vector<Axis> many;
    for (char name = 'a'; name < 'a' + 9; ++name) many.push_back({std::string(1, name), 2});
    const Mesh nine(many);
    CHECK(nine.over("a+h"));
    CHECK_FALSE(nine.over("a+i"));
}

TEST_CASE("two axes in one message: each of N ranks sends 2 S (N-1)/N") {
    for (const bool clip : {false, true})
        for (const std::vector<Axis>& axes :
             {std::vector<Axis>{{"rep", 2}, {"dp", 2}}, std::vector<Axis>{{"rep", 2}, {"dp", 3}}})
            for (const int64_t micro : {1, 2}) {
                const Mesh mesh = Mesh(axes).with_microbatches(micro);
                Program program = replicas(clip);
                if (micro > 1) program.microbatches(micro, {});
                INFO(mesh.text());
                const Lowered apart = compile(program, mesh), joined = compile(program, mesh, together(mesh));
                CHECK(messages(apart.plan) == std::map<std::string, int>{{"all_reduce rep", 5}, {"all_reduce dp", 5}});
                CHECK(messages(joined.plan) == std::map<std::string, int>{{"all_reduce rep+dp", 5}});
                int64_t S = 4;  // the loss
                for (const ValueId param : program.params()) S += program.value(param).type.bytes();
                const int64_t rep = mesh.size("rep"), dp = mesh.size("dp"), N = rep * dp;
                const auto near = [](int64_t bytes, int64_t exact) { return std::abs(bytes - exact) < 5 * 4; };
                CHECK(near(bytes_sent(apart.plan), 2 * S * (rep - 1) / rep + 2 * S * (dp - 1) / dp));
                CHECK(near(bytes_sent(joined.plan), 2 * S * (N - 1) / N));
                int64_t listed = 0;
                for (const Redistribution& e : redistributions(joined.plan)) {
                    CHECK(e.axis == "rep+dp");
                    CHECK_FALSE(e.implicit);
                    listed += e.bytes;
                }
                CHECK(listed == bytes_sent(joined.plan));
                // What communicators counted, and what came of it.
                const Ran ran = run_steps(joined, 2), before = run_steps(apart, 2);
                CHECK(difference(ran.values, before.values, 1e-5) == "");
                int64_t counted = 0;
                for (const auto& rank : ran.traffic)
                    for (size_t axis = 0; axis < rank.size(); ++axis) {
                        counted += rank[axis].bytes_sent;
                        if (static_cast<AxisId>(axis) != *mesh.over("rep+dp")) CHECK(rank[axis].bytes_sent == 0);
                    }
                CHECK(counted == 2 * 2 * S * (N - 1));  // of all ranks, two steps
            }
}

TEST_CASE("all-reduces over axes together share buckets, of the smaller size that a mark allows") {
    Program program = replicas();
    program.bucket("rep", 1 << 20, {});
    CHECK(program.bucket_bytes("rep+dp") == 1 << 20);
    program.bucket("dp", 1 << 10, {});
    CHECK(program.bucket_bytes("rep+dp") == 1 << 10);
    CHECK(program.bucket_bytes("rep") == 1 << 20);
    CHECK(program.bucket_bytes("re+d") == 0);
    const Lowered joined = compile(program, four, together(four));
    CHECK(messages(joined.plan) == std::map<std::string, int>{{"all_reduce rep+dp", 2}});  // gradients, the loss
    CHECK(difference(run_steps(joined, 2).values, run_steps(compile(program, four), 2).values, 1e-5) == "");
}

TEST_CASE("three axes of two transports: two share a message, the third has its own") {
    Model m = mlp(16, 4, 12, true, true);
    m.split_names({{"batch", "rep"}, {"batch", "dp"}, {"batch", "cp"}});
    const Mesh mesh({{"rep", 2}, {"dp", 2}, {"cp", 2}});
    CompileOptions options = together(mesh);
    CHECK(messages(compile(m.program, mesh, options).plan) == std::map<std::string, int>{{"all_reduce rep+dp+cp", 5}});
    for (const auto& [odd, both] : {std::pair("rep", "dp+cp"), std::pair("dp", "rep+cp"), std::pair("cp", "rep+dp")}) {
        options.transports = one_transport(mesh);
        options.transports[odd] = "other";
        const Lowered lowered = compile(m.program, mesh, options);
        CHECK(messages(lowered.plan) == std::map<std::string, int>{{std::string("all_reduce ") + odd, 5},
                                                                   {std::string("all_reduce ") + both, 5}});
        CHECK(difference(run_steps(lowered, 1).values, run_steps(compile(m.program, mesh), 1).values, 1e-5) == "");
    }
}

TEST_CASE("all-to-alls over two axes are one message, unless one axis enters the dim that the other leaves") {
    const Mesh mesh({{"dp", 2}, {"cp", 2}});
    const CompileOptions options = together(mesh);
    const std::string one = "dp+cp", two = "cp dp";
    struct Case {
        std::vector<Move> moves;
        std::string messages;
        const char* why;
    };
    for (const auto& [moves, expected, why] :
         {Case{{{"dp", 0, 2}, {"cp", 1, 2}}, one, ""}, Case{{{"dp", 0, 2}, {"cp", 0, 2}}, one, ""},
          Case{{{"dp", 0, 1}, {"cp", 0, 2}}, one, ""},
          Case{{{"cp", 0, 1}, {"dp", 1, 2}}, two, "axis dp leaves dim 1, axis cp enters it"},
          Case{{{"cp", 1, 2}, {"dp", 0, 1}}, two, "axis cp leaves dim 1, axis dp enters it"}}) {
        const Program program = moved(moves);
        INFO(fmt::format("{} {} -> {}, {} {} -> {}", moves[0].axis, moves[0].from, moves[0].to, moves[1].axis,
                         moves[1].from, moves[1].to));
        const Lowered joined = compile(program, mesh, options), apart = compile(program, mesh);
        CHECK(exchanges(apart.plan) == two);
        CHECK(exchanges(joined.plan) == expected);
        CHECK_THAT(apart_text(axes_apart(joined.plan.program, joined.plan.mesh, carriers_of(options))),
                   Catch::Matchers::Contains(why));
        CHECK(difference(run_steps(joined, 2).values, run_steps(apart, 2).values, 1e-5) == "");
    }
}

TEST_CASE("three all-to-alls of two transports: neighbours share a message, the reason of the others is said") {
    const Mesh mesh({{"dp", 2}, {"cp", 2}, {"ep", 2}});
    const Program program = moved({{"dp", 0, 1}, {"cp", 0, 1}, {"ep", 0, 1}});  // ep leaves first, back dp
    CompileOptions options = together(mesh);
    CHECK(exchanges(compile(program, mesh, options).plan) == "dp+cp+ep");
    const Lowered apart = compile(program, mesh);
    for (const auto& [odd, expected] :
         {std::pair("ep", "dp+cp ep"), std::pair("cp", "cp dp ep"), std::pair("dp", "cp+ep dp")}) {
        INFO(odd);
        options.transports = one_transport(mesh);
        options.transports[odd] = "gloo";
        const Lowered lowered = compile(program, mesh, options);
        CHECK(exchanges(lowered.plan) == expected);
        CHECK_THAT(apart_text(axes_apart(lowered.plan.program, lowered.plan.mesh, carriers_of(options))),
                   Catch::Matchers::Contains(fmt::format("axis {} has ", odd)) && Catch::Matchers::Contains("gloo"));
        CHECK(difference(run_steps(lowered, 1).values, run_steps(apart, 1).values, 1e-5) == "");
    }
}

TEST_CASE("what keeps two axes apart is said") {
    const auto told = [](const Program& program, const Mesh& mesh, const CompileOptions& options) {
        const Lowered lowered = compile(program, mesh, options);
        return apart_text(axes_apart(lowered.plan.program, lowered.plan.mesh, carriers_of(options)));
    };
    CompileOptions options = together(four);
    CHECK(told(replicas(), four, options).empty());
    options.transports["dp"] = "gloo";
    const std::string of_transports = told(replicas(), four, options);
    CHECK_THAT(of_transports, Catch::Matchers::Contains("two messages are not merged into one: 5 values of ") &&
                                  Catch::Matchers::Contains("axis rep has transport threads, axis dp has gloo"));
    options = together(four);
    options.collectives["dp"] = {ring_table(2)};
    CHECK_THAT(told(replicas(), four, options),
               Catch::Matchers::Contains("[collectives] sets an all_reduce for axis dp"));
    CHECK(messages(compile(replicas(), four, options).plan) ==
          std::map<std::string, int>{{"all_reduce rep", 5}, {"all_reduce dp", 5}});
    for (ChunkTable& table : options.collectives["dp"]) table.collective = Opcode::all_gather;
    CHECK(told(replicas(), four, options).empty());
    CHECK_THAT(told(replicas(), four, {}), Catch::Matchers::Contains("is unknown"));

    // The status word goes with the loss where their messages are joined, and then where the loss does not.
    Model split = mlp(24, 4, 12);
    split.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    const Mesh both({{"dp", 2}, {"tp", 2}});
    options = together(both);
    options.status_word = true;
    CHECK(told(split.program, both, options).empty());
    split.program.bucket("dp", 1 << 20, {});
    CHECK(told(split.program, both, options) ==
          "two messages are not merged into one: 1 value of 4 B summed over dp, then over tp: over dp it is sent "
          "together "
          "with the loss\n");

    // The sum over one axis is read by itself.
    Model m = mlp(24, 4, 12, true, false);
    m.split_names({{"batch", "rep"}, {"batch", "dp"}});
    Program program = distribute(m.program, four);
    for (Op& op : program.ops)
        if (op.kind == "all_reduce") {
            program.results.push_back({"between", op.outputs[0]});
            break;
        }
    const size_t ops = program.ops.size();
    const AxisCarriers carriers{one_transport(four), {}};
    join_axes(program, four, carriers);
    CHECK(program.ops.size() == ops - 4);
    const auto left = axes_apart(program, four, carriers);
    REQUIRE(left.size() == 1);
    CHECK(left[0].values == 1);
    CHECK_THAT(left[0].why,
               Catch::Matchers::Contains("the sum over ") && Catch::Matchers::Contains("alone is needed as well"));

    // So is the exchange over one axis.
    const Mesh grid({{"dp", 2}, {"cp", 2}});
    Program moves = distribute(moved({{"dp", 0, 2}, {"cp", 1, 2}}), grid);
    const auto first = std::find_if(moves.ops.begin(), moves.ops.end(),
                                    [](const Op& op) { return collective_of(op) == Opcode::all_to_all; });
    REQUIRE(first != moves.ops.end());
    moves.results.push_back({"between", first->outputs[0]});
    const AxisCarriers one_way{one_transport(grid), {}};
    join_axes(moves, grid, one_way);
    const auto remaining = axes_apart(moves, grid, one_way);
    const auto exchange = std::find_if(remaining.begin(), remaining.end(),
                                       [](const ApartAxes& entry) { return entry.then_kind == "all_to_all"; });
    REQUIRE(exchange != remaining.end());
    CHECK(exchange->why == fmt::format("the exchange over {} alone is needed as well", exchange->first));
}

TEST_CASE("what is never one message is said, too, also where it is packed") {
    const auto told = [](const Model& m, const Mesh& mesh, const CompileOptions& options) {
        const Lowered lowered = compile(m.program, mesh, options);
        return apart_text(axes_apart(lowered.plan.program, lowered.plan.mesh, carriers_of(options)));
    };
    const CompileOptions options = together(four);
    for (const int64_t bucket : {0, 1 << 20}) {
        INFO("bucket " << bucket);
        Model sharded = mlp(24, 4, 12, false, false);
        sharded.split_names({{"batch", "rep"}, {"batch", "dp"}});
        for (const ValueId param : sharded.program.params()) {
            sharded.program.store(param, "dp", Placement::split(0), {});
            sharded.program.use(param, "dp", Placement::replicated(), {});
        }
        for (const char* axis : {"rep", "dp"}) sharded.program.bucket(axis, bucket, {});
        CHECK(told(sharded, four, options) ==
              "two messages are not merged into one: 2 values of 192 B reduce-scattered over dp, then summed over rep: "
              "each rank "
              "sums the part alone that it keeps of the first\n");
        for (const ValueId param : sharded.program.params()) {
            sharded.program.store(param, "rep", Placement::split(0), {});
            sharded.program.use(param, "rep", Placement::replicated(), {});
        }
        const std::string all = told(sharded, four, options);
        CHECK_THAT(all, Catch::Matchers::Contains(" 2 values of 384 B gathered over ") &&
                            Catch::Matchers::Contains(" reduce-scattered over ") &&
                            Catch::Matchers::Contains("one after the other they send no more bytes"));
        CHECK(std::count(all.begin(), all.end(), '\n') == 2);
    }
    CHECK(
        apart_text({{"rep", "dp", "all_gather", "all_gather", "why", 2, 1024, "evaluate"}}) ==
        "two messages are not merged into one in evaluate: 2 values of 1.0 KiB gathered over rep, then over dp: why\n");
    // The gradient's norm: the stages' parts are added over them, then over their ranks.
    Model stages = network({0, 1}, false, DType::f32, 16);
    stages.split_names({{"mlp", "tp"}});
    stages.program.pipeline({"pp", "1f1b", 1, {}});
    stages.program.microbatches(2, {});
    const Mesh mesh = Mesh({{"pp", 2}, {"tp", 2}}).with_microbatches(2);
    const Schedule schedule = hand_1f1b(2, 2);
    CompileOptions piped = together(mesh);
    piped.schedule = &schedule;
    piped.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    CHECK(told(stages, mesh, piped) ==
          "two messages are not merged into one: 1 value of 4 B summed over pp, then over tp: lowering makes the sum "
          "over stages, "
          "after messages have been joined\n");
}

TEST_CASE("the proof knows groups over several axes") {
    Lowered lowered = compile(replicas(), four, together(four));
    const std::string text = print(lowered.plan);
    CHECK_THAT(text, Catch::Matchers::Contains("all_reduce") && Catch::Matchers::Contains("rep+dp"));
    CHECK(joined_axes({&lowered.plan}) == std::set<std::string>{"rep+dp"});
    // One member of the group runs another collective.
    RankClass other = lowered.plan.classes[0];
    lowered.plan.classes[0].ranks = {0, 1, 2};
    other.ranks = {3};
    for (Instruction& i : other.stream)
        if (i.axis != none) {
            i.reduce = ReduceOp::max;
            break;
        }
    lowered.plan.classes.push_back(std::move(other));
    CHECK_THROWS_WITH(check(lowered.plan, {}), Catch::Matchers::Contains("members of axis rep+dp disagree"));
}

TEST_CASE("a pipeline's later stages sum over the other axes together, and its proof runs") {
    Model m = network({0, 1}, false, DType::f32, 16);
    m.split_names({{"batch", "rep"}, {"batch", "dp"}});
    m.program.pipeline({"pp", "1f1b", 1, {}});
    m.program.microbatches(2, {});
    const Mesh mesh = Mesh({{"rep", 2}, {"pp", 2}, {"dp", 2}}).with_microbatches(2);
    const Schedule schedule = hand_1f1b(2, 2);
    CompileOptions options = together(mesh);
    options.status_word = true;
    options.schedule = &schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    const Lowered joined = compile(m.program, mesh, options);
    CHECK(joined_axes({&joined.plan}).count("rep+dp") == 1);
    options.transports.clear();
    const Lowered apart = compile(m.program, mesh, options);
    CHECK(difference(run_steps(joined, 2).values, run_steps(apart, 2).values, 1e-5) == "");
    const PlanSummary of_joined = summary(joined.plan), of_apart = summary(apart.plan);
    for (size_t k = 0; k < 2; ++k) {
        int64_t with = 0, without = 0;
        for (const auto& t : of_joined.classes[k].traffic) with += t.bytes_sent;
        for (const auto& t : of_apart.classes[k].traffic) without += t.bytes_sent;
        CHECK(with < without);
    }
}
