// Whole programs on meshes: every value equals the one-device run, and the collectives are those expected.
#include "compile/pipeline.h"

#include <catch2/catch.hpp>
#include <set>

#include <ctime>
#include <map>

#include "cases.h"
#include "golden.h"
#include "ir/build.h"
#include "ir/check_program.h"
#include "ir/op.h"
#include "ir/plugin_ops.h"
#include "ir/print.h"
#include "layout_models.h"
#include "mesh_interpreter.h"
#include "one_transport.h"

using namespace orrery;
using namespace orrery::test;

namespace {

const auto S = Placement::split;
const Placement R = Placement::replicated();

Array small(const Value& value, ValueId id) { return fill_small(value, id); }

Mesh mesh_of(std::vector<Axis> axes, int64_t micro = 1) { return Mesh(std::move(axes)).with_microbatches(micro); }

/// Steps on the way to a sum of scalars in the update, which propagation may group anew: their only reader adds them to
/// something else. What the sum comes to is compared.
std::set<ValueId> partial_sums(const Program& program) {
    const auto adds = [&](const Op& op) {
        return op.kind == "add" && op.phase == Phase::update && program.value(op.outputs[0]).type.shape.empty();
    };
    std::map<ValueId, int> readers;
    std::set<ValueId> added;
    for (const Op& op : program.ops)
        for (ValueId input : op.inputs) {
            ++readers[input];
            if (adds(op)) added.insert(input);
        }
    for (const Result& r : program.results) ++readers[r.value];
    for (const Update& u : program.updates) ++readers[u.value];
    std::set<ValueId> found;
    for (const Op& op : program.ops)
        if (adds(op) && readers[op.outputs[0]] == 1 && added.count(op.outputs[0]) != 0) found.insert(op.outputs[0]);
    return found;
}

/// Propagates and compares every value on every rank; also where axes share messages.
Program sound(const Program& program, const Mesh& mesh) {
    if (mesh.ids() > static_cast<AxisId>(mesh.axes().size())) {
        CompileOptions joining;
        joining.transports = one_transport(mesh);
        const Program joined = distribute(program, mesh, joining);
        CHECK_NOTHROW(check_program(joined));
        MeshInterpreter(joined, mesh, small).compare(evaluate(program, small), partial_sums(program));
    }
    Program result = distribute(program, mesh);
    CHECK_NOTHROW(check_program(result));
    MeshInterpreter(result, mesh, small).compare(evaluate(program, small), partial_sums(program));
    for (const Result& r : result.results)
        CHECK(result.value(r.value).layout.partials().size() <= (mesh.microbatches() > 1));
    for (const Update& u : result.updates) CHECK(result.value(u.value).layout == result.value(u.target).layout);
    return result;
}

/// "all_reduce dp": 3, counting inserted ops.
std::map<std::string, int> count(const Program& program) {
    std::map<std::string, int> counts;
    for (const Op& op : program.ops)
        if (op_def(op.kind).collective) ++counts[op.kind + " " + op.attributes.text("axis")];
    return counts;
}
using Counts = std::map<std::string, int>;

}  // namespace

TEST_CASE("data parallelism reduces each gradient and the loss once, and nothing else") {
    for (bool clip : {false, true}) {
        Model m = mlp(8, 4, 12, true, clip);
        m.split_names({{"batch", "dp"}});
        CHECK(count(sound(m.program, mesh_of({{"dp", 2}}))) == Counts{{"all_reduce dp", 5}});
        CHECK(count(sound(m.program, mesh_of({{"dp", 4}}))) == Counts{{"all_reduce dp", 5}});
        CHECK(count(sound(m.program, mesh_of({{"dp", 1}}))) == Counts{});
        CHECK(count(sound(m.program, mesh_of({{"tp", 2}}))) == Counts{});
    }
}

TEST_CASE("gradient accumulation adds no collective and keeps every value") {
    Model m = mlp(8, 4, 12);
    m.split_names({{"batch", "dp"}});
    CHECK(count(sound(m.program, mesh_of({{"dp", 2}}, 2))) == Counts{{"all_reduce dp", 5}});
    CHECK(count(sound(m.program, mesh_of({{"dp", 1}}, 4))) == Counts{});
    const Program p = distribute(m.program, mesh_of({{"dp", 2}}, 2));
    const ValueId grad = m.program.grad_of(*m.program.find("up.w"));
    CHECK(p.value(grad).layout.text(mesh_of({{"dp", 2}}, 2)) == "dp:P(sum) micro:P(sum)");
    CHECK(p.value(p.grad_of(*p.find("up.w"))).layout.replicated());
}

TEST_CASE("a tensor-parallel perceptron needs one all-reduce forward and one backward for its input's gradient") {
    for (int64_t tp : {2, 3}) {
        Model m = mlp(4, 6, 12);
        m.split_names({{"mlp", "tp"}});
        // x has no gradient, so backward reduces nothing.
        CHECK(count(sound(m.program, mesh_of({{"tp", tp}}))) == Counts{{"all_reduce tp", 1}});
    }
    Model m = mlp(4, 6, 12);
    m.split_names({{"mlp", "tp"}});
    m.split_names({{"batch", "dp"}});
    CHECK(count(sound(m.program, mesh_of({{"dp", 2}, {"tp", 2}}))) ==
          Counts{{"all_reduce dp", 5}, {"all_reduce tp", 1}});
    CHECK(count(sound(m.program, mesh_of({{"dp", 2}, {"tp", 3}}, 2))) ==
          Counts{{"all_reduce dp", 5}, {"all_reduce tp", 1}});
}

TEST_CASE("the batch split by two axes in order, and a dim split by a strategy's axis behind another's") {
    Model m = mlp(8, 4, 12);
    m.split_names({{"batch", "dp"}, {"batch", "tp"}});
    CHECK(count(sound(m.program, mesh_of({{"dp", 2}, {"tp", 2}}))) ==
          Counts{{"all_reduce dp", 5}, {"all_reduce tp", 5}});
    Model n = mlp(8, 4, 12);
    n.split_names({{"batch", "tp"}, {"batch", "dp"}});
    CHECK(count(sound(n.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2))) ==
          Counts{{"all_reduce dp", 5}, {"all_reduce tp", 5}});
}

TEST_CASE("a block with heads, mlp and vocab over tp: q, k and v share one reduction") {
    for (bool tied : {false, true}) {
        Model m = block(4, 4, 2, 4, 12, tied);
        m.split_names({{"heads", "tp"}, {"mlp", "tp"}, {"vocab", "tp"}, {"batch", "dp"}});
        const Program p = sound(m.program, mesh_of({{"dp", 2}, {"tp", 2}}));
        Counts counts = count(p);
        // Forward: embedding, o, down; maximum, sum and picked logit of each row. Backward: head, mlp, qkv.
        CHECK(counts["all_reduce tp"] == 9);
        CHECK(counts["all_gather tp"] == 0);
        sound(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
    }
}

TEST_CASE("an op of a plugin writes itself as others where its input is split") {
    const auto define = [](const char* name, bool (*decompose)(const OpLayouts&, const AddPart&)) {
        Registry brought;
        OpDef def = op_def("square");
        def.name = name;
        def.decompose = decompose;
        brought.add_op(def);
        add_plugin_ops(std::string("op/") + name, "0.1", brought);
    };
    const auto kinds = [](const char* op, int64_t dp) {
        Program program;
        Builder build(program);
        const ValueId x = build.input("x", {DType::f32, {8, 4}}, {"batch", ""}, {"", "test", 1});
        program.results.push_back({"y", build.one(op, {x}, {}, {"", "test", 2})});
        program.store(x, "dp", S(0), {"", "test", 3});
        std::string all;
        for (const Op& made : distribute(program, mesh_of({{"dp", dp}})).ops) all += made.kind + " ";
        return all;
    };
    define("eclipse", [](const OpLayouts& at, const AddPart& add) {
        if (at.inputs[0].splits()[0].empty()) return false;
        CHECK(at.mesh.size(at.inputs[0].splits()[0][0]) == 2);
        const ValueId size = add("abs", {at.op.inputs[0]}, {}, {})[0];
        CHECK(at.program.value(size).type.shape == Shape{8, 4});
        add("mul", {size, size}, {}, at.op.outputs);
        return true;
    });
    CHECK(kinds("eclipse", 1).starts_with("eclipse "));
    CHECK(kinds("eclipse", 2).starts_with("abs mul "));
    define("comet", [](const OpLayouts& at, const AddPart& add) { return !add("abs", at.op.inputs, {}, {}).empty(); });
    CHECK_THROWS_WITH(kinds("comet", 2),
                      Catch::Contains("test:2: decompose of comet %1 returned true, but no op that it added"));
    define("meteor", [](const OpLayouts& at, const AddPart& add) { return add("abs", at.op.inputs, {}, {}).empty(); });
    CHECK_THROWS_WITH(kinds("meteor", 2), Catch::Contains("decompose of meteor %1 added ops, but returned false"));
    // Values that are not the op's, or do not fit it.
    define("comet_input",
           [](const OpLayouts& at, const AddPart& add) { return !add("abs", at.op.inputs, {}, at.op.inputs).empty(); });
    CHECK_THROWS_WITH(kinds("comet_input", 2),
                      Catch::Contains("abs names value 0 as output, which is not an output of the op"));
    define("comet_two", [](const OpLayouts& at, const AddPart& add) {
        return !add("abs", at.op.inputs, {}, {at.op.outputs[0], at.op.outputs[0]}).empty();
    });
    CHECK_THROWS_WITH(kinds("comet_two", 2), Catch::Contains("abs has 1 outputs, 2 are named"));
    define("comet_type", [](const OpLayouts& at, const AddPart& add) {
        return !add("cast", at.op.inputs, {{"dtype", std::string("bf16")}}, at.op.outputs).empty();
    });
    CHECK_THROWS_WITH(kinds("comet_type", 2),
                      Catch::Contains("cast returns bf16[8,4], a type that differs from the type of output "));
    define("comet_far",
           [](const OpLayouts& at, const AddPart& add) { return !add("abs", {1000}, {}, at.op.outputs).empty(); });
    CHECK_THROWS_WITH(kinds("comet_far", 2), Catch::Contains("abs reads value 1000, which does not exist"));
}

TEST_CASE("sequence parallelism: residual values split over seq turn all-reduces into pairs") {
    Model m = block(4, 4, 2, 4, 12, false);
    m.split_names({{"heads", "tp"}, {"mlp", "tp"}, {"batch", "dp"}});
    for (const char* name : {"residual1", "residual2"}) m.store(name, "tp", S(1));
    Counts counts = count(sound(m.program, mesh_of({{"dp", 2}, {"tp", 2}})));
    CHECK(counts["reduce_scatter tp"] >= 2);
    sound(m.program, mesh_of({{"dp", 2}, {"tp", 2}}, 2));
}

TEST_CASE("use R, keep = part: kept split, gathered once in each pass by all readers that need it whole") {
    const Mesh mesh = mesh_of({{"tp", 2}});
    const auto distributed = [&](bool parts, int64_t micro) {
        Model m = block(4, 4, 2, 4, 12, false);
        m.split_names({{"heads", "tp"}, {"mlp", "tp"}, {"vocab", "tp"}});
        for (const char* name : {"residual1", "residual2"}) m.store(name, "tp", S(1));
        const Origin origin{"test", "strategy.lua", 3, 0};
        for (const Op& op : m.program.ops) {
            if (op.kind != "rmsnorm") continue;
            m.program.store(op.outputs[0], "tp", S(1), origin);
            if (parts) m.program.use(op.outputs[0], "tp", R, origin, Keep::part);
        }
        return sound(m.program, mesh_of({{"tp", 2}}, micro));
    };
    for (const int64_t micro : {1, 2}) {
        const Program whole = distributed(false, micro), parts = distributed(true, micro);
        Counts more = count(whole);
        more["all_gather tp"] += 3;  // of the inputs of attention, mlp and head, for their weights' gradients
        CHECK(count(parts) == more);
        for (const Op& op : parts.ops) {
            const Value& made = parts.value(op.outputs[0]);
            if (op.kind == "rmsnorm") CHECK(made.layout.at(0) == S(1));
            if (op.kind != "all_gather" || parts.op(parts.value(op.inputs[0]).op).kind != "rmsnorm") continue;
            CHECK(op.attributes.text("keep") == "fragment");
            for (const Op& reader : parts.ops)
                if (std::ranges::count(reader.inputs, op.outputs[0]) > 0) CHECK(reader.phase == op.phase);
        }
    }
    Model m = block(4, 4, 2, 4, 12, false);
    m.program.use(*m.program.find("residual1"), "tp", S(1), {"test", "strategy.lua", 3, 0}, Keep::part);
    CHECK_THROWS_WITH(distribute(m.program, mesh), Catch::Contains("is only for the placement R\n  mark it R"));
}

TEST_CASE("store S, use R: gathered before the first use, gradients scattered, states stay split") {
    for (const Keep keep : {Keep::step, Keep::fragment}) {
        Model m = mlp(8, 4, 12, true, true);
        m.split_names({{"batch", "dp"}});
        for (ValueId p : m.program.params()) {
            m.store(m.program.value(p).name, "dp", S(0));
            m.use(m.program.value(p).name, "dp", R, keep);
        }
        const Program p = sound(m.program, mesh_of({{"dp", 2}}));
        const Counts counts = count(p);
        CHECK(counts.at("reduce_scatter dp") == 4);
        // down.w is read in both passes; up.w and the biases only forward.
        CHECK(counts.at("all_gather dp") == (keep == Keep::step ? 4 : 5));
        for (const Op& op : p.ops)
            if (op.kind == "all_gather")
                CHECK(op.attributes.text("keep") == (keep == Keep::step ? "step" : "fragment"));
        CHECK(p.value(*p.find("up.w.m")).layout.text(mesh_of({{"dp", 2}})) == "dp:S(0)");
        sound(m.program, mesh_of({{"dp", 2}}, 2));
    }
}

TEST_CASE("states split alone: gradients are scattered, updated params gathered") {
    Model m = mlp(8, 4, 12);
    m.split_names({{"batch", "dp"}});
    for (ValueId p : m.program.params())
        for (const char* state : {".m", ".v"}) m.store(m.program.value(p).name + state, "dp", S(0));
    const Counts counts = count(sound(m.program, mesh_of({{"dp", 2}})));
    CHECK(counts == Counts{{"reduce_scatter dp", 4}, {"all_gather dp", 4}, {"shard dp", 4}, {"all_reduce dp", 1}});
    sound(m.program, mesh_of({{"dp", 2}}, 4));
}

TEST_CASE("a gradient stored split is scattered inside the loop over micro-batches") {
    Model m = mlp(8, 4, 12);
    m.split_names({{"batch", "dp"}});
    for (ValueId p : m.program.params()) {
        const std::string name = m.program.value(p).name;
        m.program.store(m.program.grad_of(p), "dp", S(0), {"test", "strategy.lua", 3, 0});
        for (const char* state : {".m", ".v"}) m.store(name + state, "dp", S(0));
    }
    const Mesh mesh = mesh_of({{"dp", 2}}, 2);
    const Program p = sound(m.program, mesh);
    int inside = 0;
    for (const Op& op : p.ops)
        if (op.kind == "reduce_scatter") inside += p.value(op.outputs[0]).layout.text(mesh) == "dp:S(0) micro:P(sum)";
    CHECK(inside == 4);
}

TEST_CASE("ten thousand ops on a mesh of four axes take well under a second") {
    Model m = deep(500, 16, 32);
    REQUIRE(m.program.ops.size() > 9000);
    m.split_names({{"mlp", "tp"}, {"batch", "pod"}, {"batch", "dp"}});
    for (ValueId p : m.program.params()) {
        m.store(m.program.value(p).name, "fsdp", S(0));
        m.use(m.program.value(p).name, "fsdp", R, Keep::fragment);
    }
    const Mesh mesh = mesh_of({{"pod", 2}, {"fsdp", 2}, {"dp", 2}, {"tp", 2}}, 2);
    const std::clock_t start = std::clock();
    const Program p = distribute(m.program, mesh);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    INFO(seconds << " s for " << m.program.ops.size() << " ops");
    CHECK(p.ops.size() > m.program.ops.size());
    CHECK_NOFAIL(seconds < 3);  // 0.3 s of one core; sanitizers take longer, a quadratic pass takes minutes
    CHECK_NOTHROW(check_program(p));
}

TEST_CASE("a gradient used split is scattered once, after the loop") {
    Model m = mlp(8, 4, 12, true, true);
    m.split_names({{"batch", "dp"}});
    for (ValueId p : m.program.params()) {
        const std::string name = m.program.value(p).name;
        m.program.use(m.program.grad_of(p), "dp", S(0), {"test", "strategy.lua", 3, 0});
        for (const char* state : {".m", ".v"}) m.store(name + state, "dp", S(0));
    }
    const Mesh mesh = mesh_of({{"dp", 2}}, 2);
    const Program p = sound(m.program, mesh);
    // The loss, and the squares of the shards' norms of four gradients, which are summed before they are reduced.
    CHECK(count(p) == Counts{{"reduce_scatter dp", 4}, {"all_gather dp", 4}, {"shard dp", 4}, {"all_reduce dp", 2}});
    for (const Op& op : p.ops)
        if (op.kind == "reduce_scatter") CHECK(p.value(op.outputs[0]).layout.text(mesh) == "dp:S(0) micro:R");
}

TEST_CASE("in bf16 a split param is gathered as its cast copy") {
    Model m = mlp(8, 4, 12, false, false, DType::bf16);
    m.split_names({{"batch", "dp"}});
    for (ValueId p : m.program.params()) {
        m.store(m.program.value(p).name, "dp", S(0));
        m.use(m.program.value(p).name, "dp", R, Keep::fragment);
    }
    for (int64_t micro : {1, 2}) {
        const Program p = sound(m.program, mesh_of({{"dp", 2}}, micro));
        int gathers = 0;
        for (const Op& op : p.ops) {
            if (op.kind != "all_gather") continue;
            ++gathers;
            CHECK(p.value(op.outputs[0]).type.dtype == DType::bf16);
            CHECK(op.attributes.text("keep") == "fragment");
        }
        CHECK(gathers == 3);  // up.w forward, down.w in both passes
    }
}

TEST_CASE("a program without ops, and results that are inputs") {
    Model m;
    m.build.result("x", m.input("x", {4, 6}, {"batch", "embed"}), {});
    m.store("x", "dp", S(0));
    CHECK(distribute(m.program, mesh_of({{"dp", 2}})).value(0).layout.text(mesh_of({{"dp", 2}})) == "dp:S(0)");
}

TEST_CASE("the printed perceptron on dp=2 tp=2") {
    Model m = mlp(8, 512, 2048, false);
    m.program.name = "mlp";
    m.split_names({{"batch", "dp"}, {"mlp", "tp"}});
    const Mesh mesh = mesh_of({{"dp", 2}, {"tp", 2}});
    check_golden("layout_mlp.txt", print(distribute(m.program, mesh), &mesh));
}

TEST_CASE("the printed block with heads, mlp and the sequence over tp") {
    Model m = block(4, 16, 2, 4, 12, false);
    m.program.name = "block";
    m.split_names({{"heads", "tp"}, {"mlp", "tp"}, {"batch", "dp"}});
    for (const char* name : {"residual1", "residual2"}) m.store(name, "tp", S(1), "sequence");
    const Mesh mesh = mesh_of({{"dp", 2}, {"tp", 2}}, 2);
    check_golden("layout_block.txt", print(distribute(m.program, mesh), &mesh));
}

TEST_CASE("drawn marks on drawn meshes: whatever is not refused is right", "[slow]") {
    uint32_t state = 2024;
    const auto draw = [&](size_t n) {
        state = state * 1664525u + 1013904223u;
        return static_cast<size_t>(state >> 16) % n;
    };
    const std::vector<std::vector<Axis>> meshes = {
        {{"dp", 2}}, {{"tp", 3}}, {{"dp", 2}, {"tp", 2}}, {{"dp", 2}, {"fs", 2}, {"tp", 2}}, {{"dp", 4}, {"tp", 2}}};
    uint64_t right = 0;
    std::map<std::string, int> refused;
    for (uint64_t round = 0; round < cases(400); ++round) {
        Model m = draw(3) == 0 ? mlp(8, 12, 24, draw(2) == 0, draw(2) == 0)
                               : block(4, 4, 4, 2, 12, draw(2) == 0, draw(2) == 0);
        const std::vector<Axis>& axes = meshes[draw(meshes.size())];
        if (draw(2) == 0) m.split_names({{"batch", "dp"}});
        if (draw(2) == 0) m.split_names({{"heads", "tp"}, {"mlp", "tp"}});
        for (size_t i = draw(8); i > 0; --i) {
            const auto value = static_cast<ValueId>(draw(m.program.values.size()));
            const size_t rank = m.program.value(value).type.shape.size();
            const Placement placement = rank == 0 || draw(4) == 0 ? R : S(static_cast<int>(draw(rank)));
            const std::string& axis = axes[draw(axes.size())].name;
            const Origin origin{"drawn", "strategy.lua", static_cast<int>(i), 0};
            if (draw(4) == 0) {
                m.program.use(value, axis, placement, origin, draw(2) == 0 ? Keep::step : Keep::fragment);
            } else {
                m.program.store(value, axis, placement, origin, draw(2) == 0);
            }
        }
        const Mesh mesh = mesh_of(axes, draw(2) == 0 ? 1 : 2);
        INFO("round " << round << " on " << mesh.text());
        try {
            sound(m.program, mesh);
            ++right;
        } catch (const Error& error) {
            ++refused[error.what()];
        }
    }
    std::string all;
    for (const auto& [text, times] : refused) all += text + "\n";
    INFO(all);
    CHECK(right > cases(250));
}
