#include <catch2/catch.hpp>

#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "folders.h"
#include "ir/build.h"
#include "ir/check_program.h"
#include "ir/op.h"
#include "ir/parse.h"
#include "ir_programs.h"

using namespace orrery;

namespace {

Origin at(int line) { return {"", "mlp.lua", line, 0}; }

std::string message(const std::function<void()>& body) {
    try {
        body();
    } catch (const Error& error) {
        CHECK(error.fault() == Fault::usage);
        return error.what();
    }
    return "nothing was thrown";
}

struct Fixture {
    Program p;
    Builder b{p};
    ValueId x = b.input("x", {DType::f32, {8, 512}}, {"batch", "embed"}, at(3));
    ValueId w = b.param("w", {DType::f32, {500, 2048}}, {"embed", "mlp"}, {}, at(4));
    ValueId good = b.param("good", {DType::f32, {512, 2048}}, {"embed", "mlp"}, {}, at(5));
    ValueId hidden = b.param("hidden", {DType::f32, {512, 2048}}, {"hidden", "mlp"}, {}, at(6));

    std::string fails(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {}) {
        return message([&] { b.add(kind, inputs, attributes, at(9)); });
    }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a shape error names the op, both operands with dim names, and all origins") {
    CHECK(fails("matmul", {x, w}) ==
          "mlp.lua:9: matmul: inner dims differ: x f32[batch=8,embed=512] (mlp.lua:3) and w f32[embed=500,mlp=2048] "
          "(mlp.lua:4); embed=512 must equal embed=500");
    CHECK(fails("matmul", {x, hidden}) ==
          "mlp.lua:9: matmul: dim names differ: embed=512 of x f32[batch=8,embed=512] (mlp.lua:3) and hidden=512 of "
          "hidden f32[hidden=512,mlp=2048] (mlp.lua:6); use one name, or rename with reshape");
    CHECK(fails("add", {x, good}).find("add: dims differ") != std::string::npos);
    CHECK(fails("matmul", {x}) == "mlp.lua:9: matmul: got 1 operands, expected (a, b, bias?)");
    CHECK(fails("gelu", {x}, {{"approx", std::string("fast")}}) ==
          "mlp.lua:9: gelu: approx = \"fast\" is unknown; there are tanh, erf");
    CHECK(fails("matmul", {x, good}, {{"transb", true}}) ==
          "mlp.lua:9: matmul: no attribute \"transb\"; did you mean \"trans_b\"? it has trans_a, trans_b, dtype");
    CHECK(fails("scale", {x}) == "mlp.lua:9: scale: attribute \"by\" (a number) is missing");
    CHECK(fails("scale", {x}, {{"by", std::string("two")}}) ==
          "mlp.lua:9: scale: attribute \"by\" has the wrong type; expected a number");
    CHECK(fails("gleu", {x}) ==
          "mlp.lua:9: unknown op \"gleu\"; did you mean \"gelu\"? core/ir/README.md lists all ops");
    CHECK(fails("softmax", {ValueId{99}}).find("operand %99 does not exist") != std::string::npos);
    CHECK(fails("slice", {x}, {{"dim", int64_t{2}}, {"start", int64_t{0}}, {"size", int64_t{1}}})
              .find("dim = 2 is not a dim of x") != std::string::npos);
    CHECK(fails("reshape", {x}, {{"shape", Shape{5, -1}}}).find("has a multiple of 5") != std::string::npos);
}

TEST_CASE_METHOD(Fixture, "dim names flow through ops, and unnamed dims take any name") {
    const ValueId h = b.one("matmul", {x, good}, {}, at(9));
    CHECK(p.value(h).dims == std::vector<std::string>{"batch", "mlp"});
    const ValueId plain = b.input("plain", {DType::f32, {8, 512}}, {}, at(10));
    CHECK(p.value(b.one("add", {plain, x}, {}, at(11))).dims == std::vector<std::string>{"batch", "embed"});
    const ValueId row = b.param("row", {DType::f32, {512}}, {"embed"}, {}, at(12));
    CHECK(p.value(b.one("mul", {x, row}, {}, at(13))).dims == std::vector<std::string>{"batch", "embed"});
    CHECK(p.value(b.one("sum", {x}, {{"dims", Shape{0}}}, at(14))).dims == std::vector<std::string>{"embed"});
    CHECK(p.value(b.one("transpose", {x}, {{"perm", Shape{1, 0}}}, at(15))).dims ==
          std::vector<std::string>{"embed", "batch"});
    const ValueId bare = b.input("bare", {DType::f32, {8, 512}}, {"batch", ""}, at(16));
    for (const std::vector<ValueId>& operands : {std::vector{plain, row}, {plain, row, bare}, {bare, row, plain}})
        CHECK(p.value(b.add("rmsnorm", operands, {}, at(17))[0]).dims.back() == "embed");
    const ValueId other = b.input("other", {DType::f32, {8, 512}}, {"batch", "heads"}, at(18));
    CHECK(fails("rmsnorm", {bare, row, other}).find("dim names differ") != std::string::npos);
    CHECK(b.add("rmsnorm", {x, row, bare}, {}, at(19)).size() == 3);
    check_program(p);
}

TEST_CASE_METHOD(Fixture, "reshape declares split, merge and renaming") {
    const ValueId heads = b.one("reshape", {x}, {{"shape", Shape{8, 8, 64}}}, at(9), {{"batch", "heads", "head_dim"}});
    CHECK(p.value(heads).dims == std::vector<std::string>{"batch", "heads", "head_dim"});
    const ValueId bare = b.one("reshape", {x}, {{"shape", Shape{8, -1, 64}}}, at(9));
    CHECK(p.value(bare).type.shape == Shape{8, 8, 64});
    CHECK(p.value(bare).dims == std::vector<std::string>{"batch", "", ""});
    const ValueId merged = b.one("reshape", {heads}, {{"shape", Shape{8, 512}}}, at(10), {{"", "embed"}});
    CHECK(p.value(merged).dims == std::vector<std::string>{"batch", "embed"});
    CHECK(p.value(b.one("reshape", {x}, {{"shape", Shape{8, 512}}}, at(11), {{"batch", "hidden"}})).dims[1] ==
          "hidden");
    CHECK(message([&] {
              b.one("relu", {x}, {}, at(12), {{"batch", "mlp"}});
          }).find("rename with reshape") != std::string::npos);
}

TEST_CASE_METHOD(Fixture, "attributes are stored in one form") {
    const ValueId n = b.one("relu", {x}, {}, at(9));
    const ValueId y = b.one("matmul", {n, good}, {{"trans_a", false}}, at(9));
    CHECK(p.op(p.value(y).op).attributes == Attributes{});
    const ValueId s = b.one("scale", {x}, {{"by", int64_t{2}}}, at(9));
    CHECK(p.op(p.value(s).op).attributes == Attributes{{"by", 2.0}});
    const ValueId t = b.one("sum", {x}, {{"dims", Shape{-1}}}, at(9));
    CHECK(p.op(p.value(t).op).attributes == Attributes{{"dims", Shape{1}}});
}

TEST_CASE_METHOD(Fixture, "names, updates and results are checked") {
    CHECK(
        message([&] {
            b.param("w", {DType::f32, {2}}, {}, {}, at(20));
        }) ==
        "mlp.lua:20: there are two values named \"w\": the other is w f32[embed=500,mlp=2048] (mlp.lua:4); rename one "
        "of them");
    CHECK(message([&] { b.input("e", {DType::f32, {0}}, {}, at(21)); }).find("at least 1") != std::string::npos);
    CHECK(message([&] {
              b.input("e", {DType::f32, {2}}, {"a", "b"}, at(22));
          }).find("1 dims but 2 dim names") != std::string::npos);
    CHECK(message([&] {
              b.state(x, "m", {DType::f32, {8}}, {}, at(23));
          }).find("must belong to a param") != std::string::npos);
    CHECK(message([&] { b.update(x, x, at(24)); }).find("neither param nor state") != std::string::npos);
    CHECK(message([&] { b.update(w, good, at(25)); }).find("the types differ") != std::string::npos);
    const ValueId m = b.state(w, "w.m", {DType::f32, {500, 2048}}, {}, at(26));
    CHECK(p.value(m).dims == p.value(w).dims);
    CHECK(p.states_of(w) == std::vector<ValueId>{m});
    b.result("loss", x, at(27));
    CHECK(message([&] { b.result("loss", w, at(28)); }).find("duplicate result name") != std::string::npos);
}

TEST_CASE("marks: earlier ones stay, later ones that differ are kept apart") {
    Program p = test::mlp();
    const ValueId w = *p.find("up.w");
    p.store(w, "tp", Placement::split(1), {"tensor", "a.lua", 1, 0});
    p.store(w, "tp", Placement::split(1), {"again", "a.lua", 2, 0});
    p.store(w, "tp", Placement::split(0), {"data", "a.lua", 3, 0});
    p.use(w, "tp", Placement::replicated(), {"data", "a.lua", 4, 0});
    CHECK(p.marks().size() == 2);
    REQUIRE(p.ignored().size() == 1);
    CHECK(p.ignored()[0].origin.who == "data");
    CHECK(message([&] { p.store(w, "tp", Placement::split(2), at(5)); }).find("it has 2 dims") != std::string::npos);
    p.microbatches(4, at(6));
    CHECK(message([&] { p.microbatches(8, at(7)); }).find("the step has 4 already") != std::string::npos);
}

TEST_CASE("options of what is sent over an axis: declared, by phase, the first stays") {
    Program program;
    const Origin data{"data", "a.lua", 3, 0}, zero{"zero", "a.lua", 4, 0};
    program.edge("dp", Phase::forward, "bucket", int64_t{100}, data);
    program.edge("dp", Phase::backward, "bucket", int64_t{200}, data);
    program.reduce_as("dp", DType::bf16, data);
    CHECK(program.bucket_bytes("dp", Phase::forward) == 100);
    CHECK(program.bucket_bytes("dp") == 200);
    CHECK(program.bucket_bytes("dp", Phase::update) == 0);
    CHECK(program.edge("dp", Phase::forward) == Attributes{{"bucket", int64_t{100}}});
    CHECK(program.edge("dp", Phase::backward) == Attributes{{"bucket", int64_t{200}}, {"codec", std::string("bf16")}});
    CHECK(program.edge("tp", Phase::backward) == Attributes{});
    program.bucket("dp", 100, zero);  // the update takes it, the backward pass has another size
    CHECK(program.bucket_bytes("dp", Phase::update) == 100);
    REQUIRE(program.remarks().size() == 1);
    CHECK(program.remarks()[0].text == "bucket of 100 bytes over dp is ignored: an earlier strategy chose 200");
    CHECK(program.edges().size() == 4);
    const auto refused = [&](std::optional<Phase> phase, const char* option, Attribute value, const char* why) {
        CHECK(message([&] { program.edge("tp", phase, option, std::move(value), zero); }).find(why) !=
              std::string::npos);
    };
    refused({}, "carrier", int64_t{8}, "zero, a.lua:4: \"carrier\" is not an option of axis tp");
    refused({}, "codec", std::string("int9"), "there is no codec \"int9\"");
    refused({}, "bucket", 1.5, "bucket over tp has a value of the wrong type");
    refused(Phase::forward, "codec", std::string("bf16"), "codec over tp cannot be set for the forward phase");
    refused({}, "prefetch", std::vector<int64_t>{1}, "prefetch over tp has 1 numbers");
}

TEST_CASE("verify names what is illegal") {
    auto broken = [](const std::function<void(Program&)>& damage) {
        Program p = test::mlp();
        check_program(p);
        damage(p);
        return message([&] { check_program(p); });
    };
    CHECK(broken([](Program& p) { p.values[5].type.shape[0] = 9; }).find("which should be f32[batch=8,mlp=10]") !=
          std::string::npos);
    CHECK(broken([](Program& p) { std::swap(p.ops[0], p.ops[1]); }).find("is not listed as output 0") !=
          std::string::npos);
    CHECK(broken([](Program& p) { p.ops[0].inputs[0] = 7; }).find("which is made later") != std::string::npos);
    CHECK(broken([](Program& p) { p.ops[0].kind = "matmull"; }).find("is not a known op") != std::string::npos);
    CHECK(broken([](Program& p) { p.ops[0].phase = Phase::update; }).find("after an op of a later phase") !=
          std::string::npos);
    CHECK(broken([](Program& p) { p.values[0].name = "y"; }).find("two values are named y") != std::string::npos);
    CHECK(broken([](Program& p) { p.updates = {{2, 2}, {2, 2}}; }).find("is updated twice") != std::string::npos);
    CHECK(broken([](Program& p) { p.set_grad(2, 3); }).find("does not fit") != std::string::npos);
    CHECK(broken([](Program& p) { p.values[0].role = Role::temporary; }).find("which no op computes") !=
          std::string::npos);
    CHECK(broken([](Program& p) { p.ops[1].attributes.set("speed", int64_t{3}); }).find("no attribute \"speed\"") !=
          std::string::npos);
}

TEST_CASE("the manual's table lists every op") {
    std::ifstream file(in_source("core/ir/README.md"));
    std::stringstream text;
    text << file.rdbuf();
    for (const OpDef* def : own_ops()) {
        INFO(def->name);
        CHECK(text.str().find('`' + std::string(def->name)) != std::string::npos);
    }
}

TEST_CASE_METHOD(Fixture, "ops of codes say which blocks, bits and scales they take") {
    using std::literals::operator""s;
    const ValueId q = b.input("q", {DType::i8, {8, 512}}, {"batch", ""}, at(7));
    const ValueId scale = b.input("scale", {DType::bf16, {8, 3}}, {}, at(8));
    CHECK(fails("quantize", {x}, {{"dtype", "i32"s}}) ==
          "mlp.lua:9: quantize: dtype is i32; give i8, f8e4m3 or f8e5m2");
    CHECK(fails("quantize", {x}, {{"dtype", "i8"s}, {"bits", int64_t{3}}}) ==
          "mlp.lua:9: quantize: bits = 3; give 8, 4, 2 or 1");
    CHECK(fails("quantize", {x}, {{"bits", int64_t{4}}}) ==
          "mlp.lua:9: quantize: bits = 4 with dtype f8e4m3; use dtype = i8");
    CHECK(fails("quantize", {x}, {{"block", int64_t{0}}}) ==
          "mlp.lua:9: quantize: block = 0 is out of range: expected 1 to 2^40");
    CHECK(fails("quantize", {x}, {{"block", std::numeric_limits<int64_t>::max()}}) ==
          "mlp.lua:9: quantize: block = 9223372036854775807 is out of range: expected 1 to 2^40");
    CHECK(fails("dequantize", {q, scale}, {{"block", (int64_t{1} << 40) + 1}}) ==
          "mlp.lua:9: dequantize: block = 1099511627777 is out of range: expected 1 to 2^40");
    CHECK(
        fails("dequantize", {x, scale}) ==
        "mlp.lua:9: dequantize: x f32[batch=8,embed=512] (mlp.lua:3) is neither i8 nor a float of 8 bits; quantize it");
    CHECK(fails("dequantize", {q, scale}, {{"block", int64_t{256}}}) ==
          "mlp.lua:9: dequantize: scale bf16[8,3] (mlp.lua:8) is not one scale for each block of q i8[batch=8,512] "
          "(mlp.lua:7); "
          "expected [8,2]");
    CHECK(fails("unpack", {b.one("pack", {q}, {{"bits", int64_t{2}}}, at(9))},
                {{"bits", int64_t{2}}, {"size", int64_t{508}}})
              .find("unpack: size = 508 of 2 bits is not what the rows of") != std::string::npos);
    CHECK(fails("block_top_k", {x}, {{"k", int64_t{9}}, {"block", int64_t{8}}}) ==
          "mlp.lua:9: block_top_k: k = 9 is out of range: expected 1 to the block's 8");
    const std::vector<ValueId> made = b.add("quantize", {x}, {{"dtype", "i8"s}, {"block", int64_t{500}}}, at(9));
    CHECK(p.value(made[0]).type == TensorType{DType::i8, {8, 512}});
    CHECK(p.value(made[1]).type == TensorType{DType::bf16, {8, 2}});
    const std::vector<ValueId> whole = b.add("quantize", {x}, {{"dtype", "i8"s}, {"block", int64_t{1} << 40}}, at(9));
    CHECK(p.value(whole[1]).type == TensorType{DType::bf16, {8, 1}});
}
