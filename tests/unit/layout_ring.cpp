// Ring attention: what its decomposition gives on ranks is what one device has, and when its messages are issued.
#include <catch2/catch.hpp>

#include <algorithm>

#include "compile/pipeline.h"
#include "interpreter.h"
#include "ir/check_program.h"
#include "ir/op.h"
#include "layout_models.h"
#include "mesh_interpreter.h"
#include "plan/access.h"
#include "plan/lint.h"
#include "verify_plan.h"

using namespace orrery;
using namespace orrery::test;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t batch = 2, seq = 12, heads = 4, head_dim = 3;

struct Form {
    std::string name;
    bool causal = true;
    int64_t window = 0;
    bool documents = false;
    int64_t kv_heads = 2, value_dim = head_dim, keys = seq;
};

/// sum(attention(q, k, v)^2 + merged statistics), with the use of k, v and the index marked as split over `around`.
struct Attending {
    Model m;
    ValueId k, v;

    explicit Attending(const Form& form, const std::vector<std::string>& around = {"cp"}, DType compute = DType::f32) {
        m.compute = compute;
        const auto made = [&](const char* name, Shape shape, Names dims) {
            return m.op("scale", {m.param(name, std::move(shape), std::move(dims))}, {{"by", 0.5}});
        };
        const ValueId q = made("q", {batch, seq, heads, head_dim}, {"batch", "seq", "heads", "head_dim"});
        k = made("k", {batch, form.keys, form.kv_heads, head_dim}, {"batch", "keys", "kv_heads", "head_dim"});
        v = made("v", {batch, form.keys, form.kv_heads, form.value_dim}, {"batch", "keys", "kv_heads", "value_dim"});
        std::vector<ValueId> inputs{q, k, v};
        for (const char* name : {"documents", "positions", "key_documents", "key_positions"})
            if (form.documents)
                inputs.push_back(m.input(name, {batch, seq}, {"batch", name[0] == 'k' ? "keys" : "seq"}, DType::i32));
        const std::vector<ValueId> out =
            m.build.add("attention", inputs, {{"causal", form.causal}, {"window", form.window}}, m.here());
        // exp: 0 where a query sees no key
        const ValueId seen = m.op("sum", {m.op("exp", {out[1]})}, {{"dims", std::vector<int64_t>{0, 1, 2}}});
        m.train(m.op("add", {m.op("sumsq", {out[0]}), seen}));
        m.split_names({{"seq", "cp"}, {"keys", "cp"}});
        for (const std::string& axis : around)
            for (size_t i = 1; i < inputs.size(); ++i)
                if (i != 3 && i != 4) m.program.use(inputs[i], axis, Placement::split(1), m.here());
    }
};

/// By kind: the ops of the propagated program; "roll cp" exchanges blocks over cp.
std::map<std::string, int> kinds(const Program& program) {
    std::map<std::string, int> found;
    for (const Op& op : program.ops) ++found[op.kind == "roll" ? "roll " + op.attributes.text("axis") : op.kind];
    return found;
}

/// Documents of up to five tokens, one of padding, and their positions.
Array contents(const Value& value, ValueId id) {
    if (is_float(value.type.dtype)) return fill_small(value, id);
    Array array(value.type);
    const bool documents = value.name.ends_with("documents");
    for (int64_t i = 0, document = 0, at = 0; i < array.type.count(); ++i, ++at) {
        if (i % seq == 0 || at > document % 5) ++document, at = 0;
        array.i32()[i] = static_cast<int32_t>(documents ? (document % 4 == 3 ? -1 : document) : at);
    }
    return array;
}

/// The propagated program, whose values are those of one device. `strict`: it gathers nothing that no mark asks for.
Program exact(const Program& program, const Mesh& mesh, bool strict = true) {
    CompileOptions forbids;
    forbids.redistribution.forbid_implicit = strict;
    Program result = distribute(program, mesh, forbids);
    CHECK_NOTHROW(check_program(result));
    MeshInterpreter(result, mesh, contents).compare(evaluate(program, contents));
    return result;
}

const std::vector<Form>& forms() {
    static const std::vector<Form> all{
        {"plain", false},
        {"causal"},
        {"window of 1", true, 1},
        {"window of 5", true, 5},
        {"documents", true, 0, true},
        {"documents, window", true, 2, true},
        {"documents, not causal", false, 0, true},
        {"values of another size", true, 0, false, 1, 5},
        {"more keys than queries", false, 0, false, 4, head_dim, 24},
    };
    return all;
}

CompileOptions threads(const Mesh& mesh) {
    CompileOptions options;
    for (const Axis& axis : mesh.axes()) {
        options.contracts[axis.name].send = TransportContract::Send::rendezvous;
        options.contracts[axis.name].lanes = TransportContract::Lanes::peer_and_direction;
    }
    return options;
}

}  // namespace

TEST_CASE("ring: every mask on 2 to 6 ranks is that of one device, in P - 1 rolls, P attentions and P - 1 merges") {
    for (const Form& form : forms())
        for (const int members : {2, 3, 4, 6}) {
            INFO(form.name << " on " << members);
            const auto found = kinds(exact(Attending(form).m.program, Mesh({{"cp", members}})));
            const int index = form.documents ? 2 * (members - 1) : 0;
            CHECK(found.at("roll cp") == 6 * (members - 1) + index);
            CHECK(found.at("attention") == members);
            CHECK(found.at("attention_grad") == members);
            CHECK(found.at("merge") == members - 1);
            for (const char* moved : {"all_gather", "all_to_all", "reduce_scatter"}) CHECK(found.count(moved) == 0);
        }
}

TEST_CASE("ring: with heads, the batch and micro-batches split, and in bf16") {
    for (const Form& form : forms()) {
        INFO(form.name);
        Attending tp(form);
        tp.m.split_names({{"heads", "tp"}, {"kv_heads", "tp"}});
        if (form.kv_heads > 1) exact(tp.m.program, Mesh({{"cp", 2}, {"tp", 2}}));
        Attending shared(form);  // ranks share the queries of one key/value head
        shared.m.split_names({{"heads", "tp"}});
        exact(shared.m.program, Mesh({{"cp", 3}, {"tp", 2}}), false);
        Attending dp(form);
        dp.m.split_names({{"batch", "dp"}});
        exact(dp.m.program, Mesh({{"dp", 2}, {"cp", 2}}));
        exact(Attending(form, {"cp"}, DType::bf16).m.program, Mesh({{"cp", 3}}));
    }
}

TEST_CASE("ring: queries split further inside, and a mark that only split keys carry") {
    Attending inner({"causal"});
    inner.m.split_names({{"seq", "co"}});
    CHECK(kinds(exact(inner.m.program, Mesh({{"cp", 2}, {"co", 3}}))).at("roll cp") == 6);
    const Program unmarked = Attending({"causal"}, {}).m.program;
    CHECK(kinds(distribute(unmarked, Mesh({{"cp", 2}}))).count("roll cp") == 0);
    CompileOptions forbids;
    forbids.redistribution.forbid_implicit = true;
    CHECK_THROWS_WITH(distribute(unmarked, Mesh({{"cp", 2}}), forbids), Contains("attention reads dim 1 (keys) whole"));
    CHECK(kinds(exact(Attending({"causal"}).m.program, Mesh({{"cp", 1}}))).count("merge") == 0);
}

TEST_CASE("ring: what cannot go around is refused with the reason") {
    const auto refused = [](const Program& program, const Mesh& mesh, const std::string& why) {
        CHECK_THROWS_WITH(distribute(program, mesh), Contains("cannot pass keys of ") && Contains(why));
    };
    Attending two({"causal"}, {"cp", "co"});
    two.m.split_names({{"seq", "co"}, {"keys", "co"}});
    refused(two.m.program, Mesh({{"cp", 2}, {"co", 3}}), "a ring over cp passes them already");
    Attending inside({"causal"}, {"co"});
    inside.m.split_names({{"seq", "co"}, {"keys", "co"}});
    refused(inside.m.program, Mesh({{"cp", 2}, {"co", 3}}), "around co=3: their sequence is split by cp outside");
    Attending blocks({"causal"});
    for (Op& op : blocks.m.program.ops)
        if (op.kind.starts_with("attention")) op.attributes.set("blocks", int64_t{2});
    refused(blocks.m.program, Mesh({{"cp", 2}}), "the op has blocks of its own; leave blocks out, or gather its keys");
}

TEST_CASE("ring: each roll is issued before the kernels that it overlaps with, and waits for none of them") {
    constexpr int members = 4;
    const Mesh mesh({{"cp", members}});
    const Attending attending({"causal"});
    CompileOptions options = threads(mesh);
    options.contracts["cp"].queued = true;
    const Lowered lowered = compile(attending.m.program, mesh, options);
    const Plan& plan = lowered.plan;
    const RankClass& c = plan.classes.at(0);
    int forward = 0, backward = 0, sends = 0;
    std::map<int, int> issued;  // by message: the number of attentions before it, which is that of the one it overlaps
    for (size_t at = 0; at < c.stream.size(); ++at) {
        const Instruction& i = c.stream[at];
        if (is_message(i.opcode)) issued[static_cast<int>(at)] = forward + backward;
        sends += i.opcode == Opcode::send;
        const std::string kind = i.opcode == Opcode::kernel ? c.kernels[static_cast<size_t>(i.kernel)].op : "";
        if (kind != "attention" && kind != "attention_grad") continue;
        const bool first = kind == "attention";
        const int step = first ? forward : backward;
        INFO(kind << " of step " << step);
        // Keys and values of the next step are on their way, and the gradients of the step before.
        CHECK(sends ==
              2 * std::min(step + 1, members - 1) + (first ? 0 : 2 * (members - 1) + 2 * std::max(step - 1, 0)));
        for (const int wait : i.waits)
            if (issued.count(wait) != 0) CHECK(issued.at(wait) < forward + backward);
        ++(first ? forward : backward);
    }
    CHECK(forward == members);
    CHECK(backward == members);
    CHECK(sends == 6 * (members - 1));
    for (const Redistribution& e : redistributions(plan)) {
        if (e.kind != "roll") continue;
        CHECK_FALSE(e.implicit);
        CHECK_THAT(e.why, Contains("part of attention"));
    }
}

TEST_CASE("ring: verify passes, and names the rank that changes its keys") {
    Attending attending({"causal"});
    attending.m.build.name(attending.k, "keys", {});
    const Program& program = attending.m.program;
    const Mesh mesh({{"cp", 3}});
    const Lowered lowered = compile(program, mesh, threads(mesh));
    check_names_rank_1(program, lowered, "keys");
}
