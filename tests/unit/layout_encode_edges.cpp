// Messages that carry codes: what is cast where, what is sent, and what comes of it.
#include "compile/passes/encode_edges.h"

#include <catch2/catch.hpp>

#include <algorithm>

#include "compile/compile.h"
#include "compile/passes/code_errors.h"
#include "ir/codecs.h"
#include "ir/op.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "layout_models.h"
#include "one_transport.h"
#include "schedules.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;
const Placement R = Placement::replicated(), P = Placement::partial(ReduceOp::sum);

/// Data parallelism over dp; `stage` of ZeRO, 0: none. Every param has a first dim that 2 divides.
Program spread(int stage, int64_t micro, int64_t bucket, const std::string& codec, int64_t embed = 4,
               int64_t hidden = 12) {
    Model m = mlp(16, embed, hidden, true, true);
    m.split_names({{"batch", "dp"}});
    for (const ValueId param : stage > 0 ? m.program.params() : std::vector<ValueId>{}) {
        for (const ValueId state : m.program.states_of(param)) m.program.store(state, "dp", S(0), {});
        const ValueId grad = m.program.grad_of(param);
        if (stage == 1) {
            m.program.store(grad, "dp", P, {}, true);
            m.program.use(grad, "dp", S(0), {});
        } else {
            m.program.store(grad, "dp", S(0), {});
        }
        if (stage < 3) continue;
        m.program.store(param, "dp", S(0), {});
        m.program.use(param, "dp", R, {}, Keep::fragment);
    }
    if (micro > 1) m.program.microbatches(micro, {});
    m.program.bucket("dp", bucket, {});
    m.program.edge("dp", std::nullopt, "codec", codec, {});
    return m.program;
}

Mesh two(int64_t micro) { return Mesh({{"dp", 2}}).with_microbatches(micro); }

/// As contents, but what codecs keep from step to step is not 0.
std::vector<char> with_normal_factors(const Value& value, int64_t step) {
    Value drawn = value;
    if (value.name.find(".factor.") != std::string::npos) drawn.role = Role::param;
    return contents(drawn, step);
}

/// Messages and bytes by kind and type: "reduce_scatter bf16".
using Sent = std::map<std::string, std::pair<int, int64_t>>;

Sent sent(const Plan& plan) {
    Sent all;
    for (const Instruction& i : plan.classes.front().stream) {
        if (i.axis == none) continue;
        auto& [count, bytes] =
            all[std::string(name_of(i.opcode)) + " " + std::string(name_of(i.operands[0].type.dtype))];
        ++count;
        bytes += std::max(i.operands[0].type.bytes(), i.operands[1].type.bytes());
    }
    return all;
}

int casts_to_bf16(const Plan& plan) {
    int count = 0;
    for (const Instruction& i : plan.classes.front().stream)
        if (i.opcode == Opcode::kernel) {
            const KernelSpec& spec = plan.classes.front().kernels[static_cast<size_t>(i.kernel)];
            count += op_def(spec.op).casts && spec.outputs[0].dtype == DType::bf16;
        }
    return count;
}

}  // namespace

TEST_CASE("gradients in bf16 are the same messages in half the bytes; the loss and the norm stay f32") {
    for (const int stage : {0, 1, 2, 3})
        for (const int64_t micro : {1, 2})
            for (const int64_t bucket : {int64_t{0}, int64_t{1} << 20}) {
                INFO("stage " << stage << ", micro-batches " << micro << ", bucket " << bucket);
                const Mesh mesh = two(micro);
                const Lowered wide = compile(spread(stage, micro, bucket, "none"), mesh);
                const Lowered narrow = compile(spread(stage, micro, bucket, "bf16"), mesh);
                Sent expected;
                const std::string gradients = stage == 0 ? "all_reduce" : "reduce_scatter";
                const Sent before = sent(wide.plan);
                for (const auto& [what, entry] : before) expected[what] = entry;
                // The loss and, where gradients are split, their norm share all_reduce with nothing else.
                auto& own = expected[gradients + " f32"];
                auto& half = expected[gradients + " bf16"];
                int loss = 0;
                if (stage == 0) loss = 1;
                half = {own.first - loss, (own.second - 4 * loss) / 2};
                own = {loss, 4 * loss};
                if (loss == 0) expected.erase(gradients + " f32");
                CHECK(sent(narrow.plan) == expected);
            }
}

TEST_CASE("contributions of micro-batches are added up in the gradient's own type") {
    for (const int stage : {0, 1, 2, 3}) {
        INFO("stage " << stage);
        const Lowered lowered = compile(spread(stage, 4, 0, "bf16"), two(4));
        // Inside the loop a message for each micro-batch, behind it one for all.
        const int params = 4, messages = stage < 2 ? params : 4 * params;
        CHECK(casts_to_bf16(lowered.plan) == messages);
        for (const RankClass& c : lowered.plan.classes)
            for (const Instruction& i : c.stream) {
                if (i.opcode != Opcode::kernel) continue;
                const KernelSpec& spec = c.kernels[static_cast<size_t>(i.kernel)];
                const bool adds = spec.attributes.flag("accumulate") || is_sum(op_def(spec.op));
                if (adds) CHECK(spec.outputs[0].dtype == DType::f32);
            }
    }
}

TEST_CASE("what came over in bf16 is verified within what its rounding explains, and a mistake is named", "[slow]") {
    for (const int stage : {0, 1, 2, 3})
        for (const int64_t micro : {1, 2})
            for (const int64_t bucket : {int64_t{0}, int64_t{1} << 20}) {
                INFO("stage " << stage << ", micro-batches " << micro << ", bucket " << bucket);
                const Program program = spread(stage, micro, bucket, "bf16");
                const Lowered lowered = compile(program, two(micro));
                const VerifyReport report = verify_plan(program, lowered);
                INFO(report.text(lowered.plan, {}));
                CHECK(report.passed());
                CHECK(report.unjudged.empty());
                CHECK_FALSE(report.judges_gradients);
                CHECK_THAT(report.text(lowered.plan, {}), Catch::Contains("gradients are sent as bf16 over dp"));
                Verifying wrong;
                wrong.options.injections = {parse_injection("scale,rank=1,tensor=up.w.grad,by=1.01")};
                const VerifyReport named = verify_plan(program, lowered, wrong);
                CHECK_FALSE(named.passed());
                REQUIRE_FALSE(named.roots.empty());
                CHECK(program.value(named.roots[0].value).name == "up.w.grad");
                CHECK(named.roots[0].rank == 1);
            }
}

TEST_CASE("over axes of which one is narrow the sums of the other keep their type", "[slow]") {
    for (const bool both : {false, true}) {
        Model m = mlp(16, 4, 12, true, true);
        m.split_names({{"batch", "rep"}, {"batch", "dp"}});
        m.program.reduce_as("dp", DType::bf16, {});
        if (both) m.program.reduce_as("rep", DType::bf16, {});
        const Mesh mesh({{"rep", 2}, {"dp", 2}});
        const Lowered lowered = compile(m.program, mesh);
        std::map<std::string, int> counts;
        for (const Instruction& i : lowered.plan.classes.front().stream)
            if (i.axis != none) ++counts[mesh.axis(i.axis).name + " " + std::string(name_of(i.operands[0].type.dtype))];
        std::map<std::string, int> expected{{"dp bf16", 4}, {"dp f32", 1}, {"rep f32", both ? 1 : 5}};
        if (both) expected["rep bf16"] = 4;
        CHECK(counts == expected);
        CHECK(casts_to_bf16(lowered.plan) == 4);  // what was sent once goes on as it is
        CHECK(verify_plan(m.program, lowered).passed());
    }
}

TEST_CASE("sums of two terms, and of two axes, leave the loop over micro-batches in order", "[slow]") {
    for (const int64_t bucket : {int64_t{0}, int64_t{1} << 20})
        for (const bool both : {false, true}) {
            Model m = network({0, 0}, true, DType::f32, 16);  // a tied table: its gradient has two terms
            m.split_names({{"batch", "rep"}, {"batch", "dp"}});
            m.program.microbatches(2, {});
            for (const char* axis : {"rep", "dp"}) m.program.bucket(axis, bucket, {});
            m.program.reduce_as("dp", DType::bf16, {});
            if (both) m.program.reduce_as("rep", DType::bf16, {});
            const Mesh mesh = Mesh({{"rep", 2}, {"dp", 2}}).with_microbatches(2);
            CompileOptions options;
            options.transports = one_transport(mesh);
            for (const CompileOptions& how : {CompileOptions(), options}) {
                INFO("bucket " << bucket << (both ? ", both narrow" : "") << ", " << how.transports.size());
                const Lowered lowered = compile(m.program, mesh, how);
                const VerifyReport report = verify_plan(m.program, lowered);
                INFO(report.text(lowered.plan, {}));
                CHECK(report.passed());
                CHECK(casts_to_bf16(lowered.plan) == 7);
            }
        }
}

TEST_CASE("gradients of a pipeline and of split products cross dp in bf16") {
    Model m = network({0, 1}, true, DType::f32, 16);
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    const Schedule schedule = hand_1f1b(2, 2);
    m.program.pipeline({"pp", schedule.name, 1, {}});
    m.program.microbatches(2, {});
    m.program.reduce_as("dp", DType::bf16, {});
    const Mesh mesh = Mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}}).with_microbatches(2);
    CompileOptions options;
    options.schedule = &schedule;
    options.contracts["pp"].lanes = TransportContract::Lanes::peer_and_direction;
    const Lowered lowered = compile(m.program, mesh, options);
    const VerifyReport report = verify_plan(m.program, lowered);
    INFO(report.text(lowered.plan, {}));
    CHECK(report.passed());
    int narrow = 0;
    for (const RankClass& c : lowered.plan.classes)
        for (const Instruction& i : c.stream)
            if (i.axis != none && i.operands[0].type.dtype == DType::bf16) {
                CHECK(mesh.axis(i.axis).name == "dp");
                ++narrow;
            }
    CHECK(narrow == 7);  // a table, and two layers of three
}

TEST_CASE("the type of gradients' messages is printed, parsed and checked") {
    Program program = spread(1, 1, 0, "bf16");
    CHECK(program.codec("dp") == "bf16");
    CHECK(program.axes_with("codec") == std::vector<std::string>{"dp"});
    CHECK(parse(print(program), "p.ir").edges() == program.edges());
    CHECK(print(parse(print(program), "p.ir")) == print(program));
    CHECK_THROWS_WITH(program.reduce_as("dp", DType::f16, {"zero", "a.lua", 4, 0}),
                      Catch::Contains("gradients over dp cannot be sent as f16") && Catch::Contains("65504"));
    CHECK_THROWS_WITH(program.reduce_as("dp", DType::i32, {}), Catch::Contains("give \"bf16\""));
    // bf16 programs have f32 gradients of matrices; what is bf16 already is left alone.
    const Program same = spread(1, 1, 0, "none");
    Program bare = distribute(same, Mesh({{"dp", 2}}));
    const std::string before = print(bare);
    encode_edges(bare, Mesh({{"dp", 2}}), nullptr);
    CHECK(print(bare) == before);
}

TEST_CASE("codes that cannot be added are exchanged, decoded, added, encoded again and gathered: bytes and messages") {
    for (const int stage : {0, 1, 2, 3})
        for (const int64_t micro : {1, 2})
            for (const int64_t bucket : {int64_t{0}, int64_t{1} << 20}) {
                INFO("stage " << stage << ", micro-batches " << micro << ", bucket " << bucket);
                const Lowered plain = compile(spread(stage, micro, bucket, "none", 16, 64), two(micro));
                const Lowered coded = compile(spread(stage, micro, bucket, "int8", 16, 64), two(micro));
                // Two matrices of 1,024 elements in 2 parts of 2 blocks each; the biases are sent as they are.
                const int times = stage < 2 ? 1 : static_cast<int>(micro), messages = bucket == 0 ? 2 * times : times;
                Sent expected = sent(plain.plan), have = sent(coded.plan);
                const int64_t elements = 2 * 1024 * times, scales = 2 * (2 * 4) * times;
                CHECK(have["all_to_all i8"] == std::pair{messages, elements});
                CHECK(have["all_to_all bf16"] == std::pair{messages, scales});
                if (stage == 0) {
                    CHECK(have["all_gather i8"] == std::pair{messages, elements});
                    CHECK(have["all_gather bf16"] == std::pair{messages, scales});
                }
                const std::string sums = stage == 0 ? "all_reduce f32" : "reduce_scatter f32";
                CHECK(expected[sums].second - have[sums].second == 4 * elements);
            }
}

TEST_CASE("values that top_k keeps are sent as codes of their own: bytes, and what is refused") {
    for (const int stage : {0, 1}) {
        INFO("stage " << stage);
        const Lowered coded = compile(spread(stage, 1, 1 << 20, "top_k/64+int2", 64, 256), two(1));
        // Two matrices of 16,384 elements in 2 parts of 2 blocks each; of a block 64 values of 2 bits, a scale, places.
        const int64_t blocks = 8;
        Sent have = sent(coded.plan);
        for (const std::string kind : {"all_to_all", "all_gather"}) {
            if (stage == 1 && kind == "all_gather") continue;
            CHECK(have[kind + " u8"] == std::pair{1, blocks * 64 / 4});
            CHECK(have[kind + " bf16"] == std::pair{1, blocks * 2});
            CHECK(have[kind + " i32"] == std::pair{1, blocks * 64 * 4});
        }
    }
    Program program = spread(0, 1, 0, "none");
    const auto asked = [&](const char* codec) { program.edge("dp", std::nullopt, "codec", std::string(codec), {}); };
    const std::string inner = "use bf16, f16, f8e4m3, f8e5m2, int8, int4, int2, sign";
    CHECK_THROWS_WITH(asked("top_k/64+none"), Catch::Contains("cannot be sent as \"none\"; " + inner));
    CHECK_THROWS_WITH(asked("top_k/64+top_k/2"), Catch::Contains("cannot be sent as \"top_k/2\"; " + inner));
    CHECK_THROWS_WITH(asked("int8+int2"), Catch::Contains("int8 keeps no values") && Catch::Contains("top_k/64+int2"));
    CHECK_THROWS_WITH(asked("top_k/1+int2"), Catch::Contains("M must be from 2 to 4096"));
}

TEST_CASE("of a table's gradient that is marked whole, ranks send the rows that they touched") {
    constexpr int64_t batch = 8, seq = 16, embed = 8, vocab = 512, tokens = batch * seq;
    Model m = block(batch, seq, 2, embed / 2, vocab, false);
    m.split_names({{"batch", "dp"}});
    const Lowered plain = compile(m.program, two(1));
    m.program.store(m.program.grad_of(*m.program.find("embed.w")), "dp", R, {});
    const Lowered rows = compile(m.program, two(1));
    Sent before = sent(plain.plan), have = sent(rows.plan);
    CHECK(before["all_reduce f32"].second - have["all_reduce f32"].second == 4 * vocab * embed);
    CHECK(have["all_gather f32"].second - before["all_gather f32"].second == 4 * tokens * embed);
    CHECK(have["all_gather i32"] == std::pair{1, 4 * tokens});
    const VerifyReport report = verify_plan(m.program, rows);
    INFO(report.text(rows.plan, {}));
    CHECK(report.passed());
}

TEST_CASE("a codec of a plugin is loaded when it is named, and ranks compare its version") {
    Model m = mlp(16, 16, 64, true, true);
    m.split_names({{"batch", "dp"}});
    Codec own = codec_named({}, "int8", {});
    own.name = "mine", own.plugin = "codec/mine", own.version = "0.2";
    int loads = 0;
    const auto load = [&](const Origin&) -> const Codec& { return ++loads, own; };
    m.program.codecs = {std::make_shared<const Codec>(Codec{.name = "mine", .load = load})};
    const auto agreement = [&] {
        Compiled compiled;
        compiled.programs.push_back({{}, compile(m.program, two(1)).plan});
        return compiled.agreement();
    };
    const std::pair<std::string, std::string> version{"plugin codec/mine", "version 0.2"};
    CHECK_THROWS_WITH(m.program.edge("dp", std::nullopt, "codec", std::string("mini"), {}),
                      Catch::Contains("no codec \"mini\"") && Catch::Contains("did you mean \"mine\""));
    CHECK(std::ranges::count(agreement(), version) == 0);
    CHECK(loads == 0);
    m.program.edge("dp", std::nullopt, "codec", std::string("mine"), {});
    CHECK(loads == 1);
    CHECK(std::ranges::count(agreement(), version) == 1);
    CHECK(parse(print(m.program), "p.ir", nullptr, m.program.codecs).codec("dp") == "mine");
}

TEST_CASE("a codec that mixes rows is refused, with the op and the array") {
    const auto compiled_with = [](const std::string& op, const Attributes& how, bool decodes) {
        Codec own;
        own.name = "own", own.bound = 1;
        own.encode = [=](const Coding& at, ValueId x) { return decodes ? std::vector{x} : at.add(op, {x}, how, {}); };
        own.decode = [=](const Coding& at, const std::vector<ValueId>& codes, const Shape&) {
            return decodes ? at.add(op, codes, how, {})[0] : codes[0];
        };
        Model m = mlp(16, 4, 12, true, true);
        m.split_names({{"batch", "dp"}});
        m.program.codecs = {std::make_shared<const Codec>(own)};
        m.program.edge("dp", std::nullopt, "codec", std::string("own"), {});
        compile(m.program, two(1));
    };
    const std::vector<std::pair<std::string, Attributes>> mixing{{"cumsum", {{"dim", int64_t{0}}}},
                                                                 {"roll", {{"dim", int64_t{0}}, {"by", int64_t{1}}}}};
    for (const bool decodes : {false, true})
        for (const auto& [op, how] : mixing) {
            INFO(op << (decodes ? " in decode" : " in encode"));
            CHECK_THROWS_WITH(
                compiled_with(op, how, decodes),
                Catch::Contains(decodes ? "codec own, decode of codes of f32[2," : "codec own, encode of f32[2,") &&
                    Catch::Contains(op + " mixes rows") && Catch::Contains("the last dim"));
        }
    Attributes last = mixing[0].second;
    last.set("dim", int64_t{2});
    CHECK_NOTHROW(compiled_with("cumsum", last, false));
}

TEST_CASE("a printed program names a script's codec and reads it back without its functions") {
    Model m = mlp(16, 16, 64, true, true);
    m.split_names({{"batch", "dp"}});
    Codec own = codec_named({}, "int8", {});
    own.name = "mine", own.text = "mine bound 0.1\n";
    m.program.codecs = {std::make_shared<const Codec>(own)};
    m.program.edge("dp", std::nullopt, "codec", std::string("mine"), {});
    const std::string text = print(m.program);
    CHECK(text.find("\n  declares mine near\n") != std::string::npos);
    const Program read = parse(text, "p.ir");
    CHECK(print(read) == text);
    CHECK_THROWS_WITH(compile(read, two(1)), Catch::Contains("codec mine: a printed program has no functions of a "
                                                             "script's codecs; use the script itself"));
}

TEST_CASE("a sum of codes is verified within the codec's bound of the plain one, and a mistake is named", "[slow]") {
    for (const char* codec : {"int8", "f8e4m3", "f8e5m2", "int4", "int2"})
        for (const int stage : {0, 1, 2, 3})
            for (const int64_t micro : {1, 2})
                for (const int64_t bucket : {int64_t{0}, int64_t{1} << 20}) {
                    if (codec != std::string("int8") && (micro > 1 || bucket == 0)) continue;
                    INFO(codec << ", stage " << stage << ", micro-batches " << micro << ", bucket " << bucket);
                    const Program program = spread(stage, micro, bucket, codec, 16, 64);
                    const Lowered lowered = compile(program, two(micro));
                    Verifying how;
                    how.options.steps = 2;
                    const VerifyReport report = verify_plan(program, lowered, how);
                    INFO(report.text(lowered.plan, {}));
                    CHECK(report.passed());
                    CHECK(report.unjudged.empty());
                    Verifying wrong;
                    wrong.options.injections = {parse_injection("scale,rank=1,tensor=up.w.grad,by=1.01")};
                    const VerifyReport named = verify_plan(program, lowered, wrong);
                    CHECK_FALSE(named.passed());
                    REQUIRE_FALSE(named.roots.empty());
                    CHECK(program.value(named.roots[0].value).name == "up.w.grad");
                }
}

TEST_CASE("gathered params are sent as codes, and verified within their bound") {
    for (const char* codec : {"int8", "bf16", "int4"})
        for (const int64_t micro : {1, 2}) {
            INFO(codec << ", micro-batches " << micro);
            Program program = spread(3, micro, 1 << 20, "none", 16, 64);
            const Lowered plain = compile(program, two(micro));
            program.edge("dp", std::nullopt, "param_codec", std::string(codec), {});
            const Lowered coded = compile(program, two(micro));
            Sent before = sent(plain.plan), have = sent(coded.plan);
            const int64_t saved = before["all_gather f32"].second - have["all_gather f32"].second;
            REQUIRE(saved > 0);
            if (codec == std::string("int8")) {
                CHECK(have["all_gather i8"].second * 4 == saved);
                CHECK(have["all_gather bf16"].second * 256 == have["all_gather i8"].second * 2);
            } else if (codec == std::string("int4")) {
                CHECK(have["all_gather u8"].second * 8 == saved);
            } else {
                CHECK(have["all_gather bf16"].second * 2 == saved);
            }
            CHECK(have["reduce_scatter f32"] == before["reduce_scatter f32"]);
            Verifying how;
            how.options.steps = 2;
            const VerifyReport report = verify_plan(program, coded, how);
            INFO(report.text(coded.plan, {}));
            CHECK(report.passed());
            Verifying wrong;
            wrong.options.injections = {parse_injection("scale,rank=1,tensor=up.w.grad,by=1.01")};
            CHECK_FALSE(verify_plan(program, coded, wrong).passed());
        }
}

TEST_CASE("sums of activations are sent as codes; what has one number a token or is short is not") {
    Model m = mlp(64, 16, 64, true, true);
    m.split_names({{"mlp", "tp"}});
    const Mesh mesh({{"tp", 2}});
    const Lowered plain = compile(m.program, mesh);
    m.program.edge("tp", std::nullopt, "activation_codec", std::string("int8"), {});
    const Lowered coded = compile(m.program, mesh);
    Sent before = sent(plain.plan), have = sent(coded.plan);
    const int64_t saved = before["all_reduce f32"].second - have["all_reduce f32"].second;
    REQUIRE(saved > 0);
    CHECK(have["all_to_all i8"].second * 4 == saved);
    CHECK(have["all_gather i8"] == have["all_to_all i8"]);
    Verifying how;
    const VerifyReport report = verify_plan(m.program, coded, how);
    INFO(report.text(coded.plan, {}));
    CHECK(report.passed());
    CHECK(std::ranges::count_if(coded.plan.program.remarks(), [](const Remark& note) {
              return note.text.find("int8 over tp: blocks are counted in what each rank sends, so results depend") !=
                     note.text.npos;
          }) == 1);

    Model small = mlp(4, 16, 64, true, true);
    small.split_names({{"mlp", "tp"}});
    small.program.edge("tp", std::nullopt, "activation_codec", std::string("int8"), {});
    const Lowered unencoded = compile(small.program, mesh);
    CHECK(sent(unencoded.plan).count("all_to_all i8") == 0);
    bool said = false;
    for (const Remark& note : unencoded.plan.program.remarks())
        said = said ||
               note.text.find("sent unencoded over tp, not as int8: parts shorter than a block") != std::string::npos;
    CHECK(said);
}

TEST_CASE("codecs that only a sum can make up for are refused for params and activations") {
    Program program = spread(3, 1, 0, "none");
    for (const char* option : {"param_codec", "activation_codec"})
        for (const char* codec : {"sign", "int2", "top_k/10", "top_k/64+int8", "powersgd/4"})
            CHECK_THROWS_WITH(program.edge("dp", std::nullopt, option, std::string(codec), {}),
                              Catch::Contains(std::string("cannot be sent as ") + codec) &&
                                  Catch::Contains("use none, bf16, f16, f8e4m3, f8e5m2, int8, int4"));
    CHECK_THROWS_WITH(program.edge("dp", std::nullopt, "codec", std::string("top_k/1"), {}),
                      Catch::Contains("M must be from 2 to 4096, as in top_k/100"));
    CHECK_THROWS_WITH(program.edge("dp", std::nullopt, "codec", std::string("powersgd/0"), {}),
                      Catch::Contains("R must be from 1 to 256, as in powersgd/4"));
}

TEST_CASE("feedback: what the sum of codes lacks is in the errors of the members, of both encodings") {
    for (const auto& [codec, members, scatters] :
         std::vector<std::tuple<std::string, int64_t, bool>>{{"int4", 2, false},
                                                             {"int4", 2, true},
                                                             {"int4", 3, false},
                                                             {"powersgd/2", 2, true},
                                                             {"powersgd/2", 3, false}}) {
        INFO(codec << ", " << members << " members" << (scatters ? ", scattered" : ""));
        const Mesh mesh({{"dp", members}});
        Model m = mlp(6 * members, 16, 64);
        m.split_names({{"batch", "dp"}});
        for (const ValueId param : scatters ? m.program.params() : std::vector<ValueId>{}) {
            for (const ValueId state : m.program.states_of(param)) m.program.store(state, "dp", S(0), {});
            m.program.use(m.program.grad_of(param), "dp", S(0), {});
        }
        const Program plain = m.program;
        m.program.edge("dp", std::nullopt, "codec", codec, {});
        m.program.edge("dp", std::nullopt, "feedback", true, {});
        add_errors(m.program, mesh);
        add_factors(m.program, mesh);
        const auto known = [](const Value& value, int64_t step) {
            std::vector<char> bytes = with_normal_factors(value, step);
            if (value.name.find(".error.") == std::string::npos) return bytes;
            for (size_t i = 0; i < bytes.size() / 4; ++i) {
                const float old = static_cast<float>(i % 7) / 1024;
                std::memcpy(&bytes[4 * i], &old, 4);
            }
            return bytes;
        };
        Running how;
        how.contents = known;
        const Contents before = run_steps(compile(plain, mesh), how).values;
        const Lowered lowered = compile(m.program, mesh);
        const Contents after = run_steps(lowered, how).values;
        for (const std::string name : {"up.w", "down.w"}) {
            const std::vector<float>&exact = before.at(name + ".m"), &sum = after.at(name + ".m");
            const std::vector<float>& left = after.at(name + ".error.dp");
            const size_t count = exact.size();
            REQUIRE(left.size() == members * count);
            double largest = 0, farthest = 0, lost = 0;
            for (size_t i = 0; i < count; ++i) {
                double errors = 0;
                for (size_t r = 0; r < static_cast<size_t>(members); ++r)
                    errors += static_cast<double>((r * count + i) % 7) / 1024 - left[r * count + i];
                const double by = 0.1 * 0.125;  // of a gradient in the mean of gradients, and the scale
                largest = std::max(largest, std::abs(static_cast<double>(exact[i])));
                lost = std::max(lost, std::abs(by * errors));
                farthest = std::max(farthest, std::abs(sum[i] - exact[i] - by * errors));
            }
            CHECK(farthest < 1e-6 * largest);
            CHECK(lost > 1e-3 * largest);
        }
        Verifying verifying;
        verifying.options.steps = 2;
        verifying.contents = known;
        const VerifyReport report = verify_plan(m.program, lowered, verifying);
        INFO(report.text(lowered.plan, {}));
        CHECK(report.passed());
    }
}

TEST_CASE("codes that ranks add in two rounds: bytes and messages under every stage") {
    for (const int stage : {0, 1, 2, 3})
        for (const int64_t micro : {1, 2})
            for (const int64_t bucket : {int64_t{0}, int64_t{1} << 20}) {
                INFO("stage " << stage << ", micro-batches " << micro << ", bucket " << bucket);
                const Lowered plain = compile(spread(stage, micro, bucket, "none", 16, 64), two(micro));
                Program program = spread(stage, micro, bucket, "powersgd/3", 16, 64);
                add_factors(program, two(micro));
                const Lowered coded = compile(program, two(micro));
                // Two matrices, 16 x 64 and 64 x 16, as factors of 3 columns; the biases are sent as they are.
                const int times = stage < 2 ? 1 : static_cast<int>(micro);
                const int64_t factors = 2 * 4 * 3 * (16 + 64) * times, whole = 2 * 4 * 1024 * times;
                Sent expected = sent(plain.plan), have = sent(coded.plan);
                const auto bytes = [](Sent& of) {
                    return of["all_reduce f32"].second + of["reduce_scatter f32"].second;
                };
                CHECK(bytes(have) - bytes(expected) == factors - whole);
                if (stage > 0)
                    CHECK(have["reduce_scatter f32"].second == expected["reduce_scatter f32"].second - whole);
                if (stage > 0) CHECK(have["all_reduce f32"].second == expected["all_reduce f32"].second + factors);
                if (stage == 1 && bucket > 0)
                    CHECK(have["all_reduce f32"].first == expected["all_reduce f32"].first + 2);
                have.erase("all_reduce f32"), have.erase("reduce_scatter f32");
                expected.erase("all_reduce f32"), expected.erase("reduce_scatter f32");
                CHECK(have == expected);
            }
    Program large = spread(0, 1, 0, "powersgd/13", 16, 64);  // 13 * 80 numbers are more than 1,024
    add_factors(large, two(1));
    CHECK_FALSE(large.find("up.w.factor.dp"));
    const Lowered unencoded = compile(large, two(1));
    bool said = false;
    for (const Remark& note : unencoded.plan.program.remarks())
        said = said || note.text.find(
                           "2 arrays (8.0 KiB in all) sent unencoded over dp, not as powersgd/13: no larger "
                           "than their codes") != std::string::npos;
    CHECK(said);
}

TEST_CASE("sums of codes in rounds are verified within their bound, and with feedback nothing is lost", "[slow]") {
    for (const int stage : {0, 1, 2, 3})
        for (const int64_t micro : {1, 2})
            for (const bool feedback : {false, true}) {
                if (feedback && stage > 1 && micro > 1) continue;
                INFO("stage " << stage << ", micro-batches " << micro << (feedback ? ", feedback" : ""));
                Program program = spread(stage, micro, 1 << 20, "powersgd/2", 16, 64);
                if (feedback) program.edge("dp", std::nullopt, "feedback", true, {});
                if (feedback) add_errors(program, two(micro));
                add_factors(program, two(micro));
                const Lowered lowered = compile(program, two(micro));
                Verifying how;
                how.options.steps = 2;
                how.contents = with_normal_factors;
                const VerifyReport report = verify_plan(program, lowered, how);
                INFO(report.text(lowered.plan, {}));
                CHECK(report.passed());
                CHECK(report.unjudged.empty());
                Verifying wrong;
                wrong.contents = with_normal_factors;
                wrong.options.injections = {parse_injection("scale,rank=1,tensor=up.w.grad,by=1.01")};
                const VerifyReport named = verify_plan(program, lowered, wrong);
                CHECK_FALSE(named.passed());
                REQUIRE_FALSE(named.roots.empty());
                CHECK(program.value(named.roots[0].value).name == "up.w.grad");
            }
}

TEST_CASE("feedback is refused where nothing is left out, and where each micro-batch is sent") {
    Program narrow = spread(0, 1, 0, "bf16", 16, 64);
    narrow.edge("dp", std::nullopt, "feedback", true, {});
    CHECK_THROWS_WITH(add_errors(narrow, two(1)),
                      Catch::Contains("feedback over dp: the codec bf16 is summed without decoding"));
    Program often = spread(2, 2, 0, "int8", 16, 64);
    often.edge("dp", std::nullopt, "feedback", true, {});
    add_errors(often, two(1));
    CHECK(often.find("up.w.error.dp"));
    CHECK_FALSE(often.find("up.b.error.dp"));
    CHECK_THROWS_WITH(compile(often, two(2)), Catch::Contains("feedback over dp: it is sent in each micro-batch"));
    CHECK(parse(print(often), "p.ir").edges() == often.edges());
}
