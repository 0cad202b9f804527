// Soundness of the factor rules: every op, run sharded on a mesh in every layout of its operands, gives what one
// device gives.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "compile/pipeline.h"
#include "ir/build.h"
#include "mesh_interpreter.h"

using namespace orrery;
using namespace orrery::test;

namespace {

struct Case {
    std::string kind;
    std::vector<TensorType> inputs;
    Attributes attributes = {};
    bool positive = false;  ///< logarithms and roots
};

TensorType f(Shape shape) { return {DType::f32, std::move(shape)}; }
TensorType i(Shape shape) { return {DType::i32, std::move(shape)}; }
TensorType b(Shape shape) { return {DType::u8, std::move(shape)}; }
const TensorType seed{DType::u32, {}};
using Ints = std::vector<int64_t>;

const std::vector<Case> cases = {
    {"full", {}, {{"shape", Ints{4, 6}}, {"value", 2.0}}},
    {"random", {seed}, {{"shape", Ints{4, 6}}}},
    {"add", {f({4, 6}), f({4, 6})}},
    {"add", {f({4, 6}), f({6})}},
    {"sub", {f({4, 6}), f({4, 1})}},
    {"mul", {f({4, 6}), f({4, 6})}},
    {"div", {f({4, 6}), f({})}, {}, true},
    {"maximum", {f({2, 4, 6}), f({4, 6})}},
    {"minimum", {f({4, 6}), f({4, 6})}},
    {"pow", {f({4, 6}), f({4, 6})}, {}, true},
    {"neg", {f({4, 6})}},
    {"exp", {f({4, 6})}},
    {"log", {f({4, 6})}, {}, true},
    {"gelu", {f({4, 6})}},
    {"silu", {f({4, 6})}},
    {"square", {f({4, 6})}},
    {"sqrt", {f({4, 6})}, {}, true},
    {"rsqrt", {f({4, 6})}, {}, true},
    {"cos", {f({4, 6})}},
    {"sin", {f({4, 6})}},
    {"tanh", {f({4, 6})}},
    {"sigmoid", {f({4, 6})}},
    {"relu", {f({4, 6})}},
    {"abs", {f({4, 6})}},
    {"scale", {f({4, 6})}, {{"by", 0.5}}},
    {"cast", {f({4, 6})}, {{"dtype", std::string("f32")}}},
    {"less", {f({4, 6}), f({4, 6})}},
    {"less_equal", {f({4, 6}), f({6})}},
    {"greater", {f({4, 6}), f({4, 6})}},
    {"greater_equal", {f({4, 6}), f({4, 1})}},
    {"equal", {f({4, 6}), f({4, 6})}},
    {"select", {b({4, 6}), f({4, 6}), f({4, 6})}},
    {"gelu_grad", {f({4, 6}), f({4, 6})}},
    {"silu_grad", {f({4, 6}), f({4, 6})}},
    {"relu_grad", {f({4, 6}), f({4, 6})}},
    {"swiglu", {f({4, 6}), f({4, 6})}},
    {"swiglu_grad", {f({4, 6}), f({4, 6}), f({4, 6})}},
    {"matmul", {f({4, 6}), f({6, 8})}},
    {"matmul", {f({4, 6}), f({6, 8}), f({8})}},
    {"matmul", {f({2, 4, 6}), f({6, 8})}},
    {"matmul", {f({2, 4, 6}), f({2, 6, 8})}},
    {"matmul", {f({4, 6}), f({8, 6})}, {{"trans_b", true}}},
    {"matmul", {f({2, 6, 4}), f({2, 6, 8})}, {{"trans_a", true}}},
    {"matmul_bias_gelu", {f({4, 6}), f({6, 8}), f({8})}},
    {"matmul_bias_gelu", {f({2, 4, 6}), f({6, 8}), f({8})}, {{"drop_pre", true}}},
    {"matmul_gelu_grad", {f({2, 4, 6}), f({8, 6}), f({2, 4, 8})}, {{"trans_b", true}}},
    {"matmul_dw", {f({2, 4, 6}), f({2, 4, 8})}},
    {"matmul_dw_bias", {f({2, 4, 6}), f({2, 4, 8})}},
    {"sum", {f({2, 4, 6})}, {{"dims", Ints{1}}}},
    {"sum", {f({2, 4, 6})}, {{"dims", Ints{0, 2}}, {"keep", true}}},
    {"max", {f({2, 4, 6})}, {{"dims", Ints{1}}}},
    {"sumsq", {f({4, 6})}},
    {"all_finite", {f({4, 6})}},
    {"softmax", {f({4, 6})}},
    {"softmax_grad", {f({4, 6}), f({4, 6})}},
    {"layernorm", {f({2, 4, 6}), f({6}), f({6})}},
    {"layernorm_grad", {f({2, 4, 6}), f({6}), f({2, 4}), f({2, 4}), f({2, 4, 6})}},
    {"layernorm", {f({2, 4, 6}), f({6}), f({6}), f({2, 4, 6})}},
    {"layernorm_grad", {f({2, 4, 6}), f({6}), f({2, 4}), f({2, 4}), f({2, 4, 6}), f({2, 4, 6})}},
    {"rmsnorm", {f({2, 4, 6}), f({6})}},
    {"rmsnorm_grad", {f({2, 4, 6}), f({6}), f({2, 4}), f({2, 4, 6})}},
    {"rmsnorm", {f({2, 4, 6}), f({6}), f({2, 4, 6})}},
    {"rmsnorm_grad", {f({2, 4, 6}), f({6}), f({2, 4}), f({2, 4, 6}), f({2, 4, 6})}},
    {"embedding", {i({2, 4}), f({12, 6})}},
    {"embedding_grad", {i({2, 4}), f({2, 4, 6})}, {{"vocab", int64_t{12}}}},
    {"rope", {f({2, 4, 2, 4})}},
    {"attention", {f({2, 4, 4, 2}), f({2, 4, 2, 2}), f({2, 4, 2, 2})}, {{"causal", true}}},
    {"attention", {f({2, 4, 4, 2}), f({2, 4, 2, 2}), f({2, 4, 2, 2})}, {{"causal", true}, {"window", int64_t{2}}}},
    {"attention_grad",
     {f({2, 4, 4, 2}), f({2, 4, 2, 2}), f({2, 4, 2, 2}), f({2, 4, 4, 2}), f({2, 4, 4}), f({2, 4, 4, 2})},
     {{"causal", true}}},
    {"attention_grad",
     {f({2, 4, 4, 2}), f({2, 4, 2, 2}), f({2, 4, 2, 2}), f({2, 4, 4, 2}), f({2, 4, 4}), f({2, 4, 4, 2})},
     {{"causal", true}, {"window", int64_t{2}}}},
    {"cross_entropy", {f({2, 4, 6}), i({2, 4})}, {{"grad", true}}},
    {"cross_entropy", {f({2, 4, 6}), i({2, 4}), f({})}, {{"grad", true}}},
    {"cross_entropy_stats", {f({2, 4, 6}), f({2, 4}), i({2, 4})}},
    {"cross_entropy_loss", {f({2, 4}), f({2, 4}), f({2, 4}), i({2, 4})}, {}, true},
    {"cross_entropy_grad", {f({2, 4, 6}), f({2, 4}), f({2, 4}), i({2, 4}), f({})}, {}, true},
    {"dropout", {f({4, 6}), seed}, {{"p", 0.5}}},
    {"reshape", {f({4, 6})}, {{"shape", Ints{2, 2, 6}}}},
    {"reshape", {f({4, 6, 2})}, {{"shape", Ints{24, 2}}}},
    {"reshape", {f({4, 6})}, {{"shape", Ints{6, 4}}}},
    {"transpose", {f({2, 4, 6})}, {{"perm", Ints{2, 0, 1}}}},
    {"slice", {f({4, 6})}, {{"dim", int64_t{1}}, {"start", int64_t{2}}, {"size", int64_t{4}}}},
    {"concat", {f({4, 2}), f({4, 4})}, {{"dim", int64_t{1}}}},
    {"pad", {f({4, 6})}, {{"dim", int64_t{0}}, {"before", int64_t{1}}, {"after", int64_t{3}}}},
    {"adamw", {f({4, 6}), f({4, 6}), f({4, 6}), f({4, 6}), f({}), f({}), f({})}, {}, true},
};

/// A program of one op over inputs. An operand whose bit is set in `summed` is the sum of an input over a leading dim
/// of 4, which a split makes partial.
struct Small {
    Program program;
    std::vector<ValueId> inputs;
    std::vector<bool> summed;

    Small(const Case& c, uint32_t sums) {
        Builder build(program);
        std::vector<ValueId> operands;
        for (size_t k = 0; k < c.inputs.size(); ++k) {
            TensorType type = c.inputs[k];
            const bool sum = type.dtype == DType::f32 && (sums >> k & 1) != 0;
            if (sum) type.shape.insert(type.shape.begin(), 4);
            inputs.push_back(
                build.input("x" + std::to_string(k), type, std::vector<std::string>(type.shape.size()), {}));
            summed.push_back(sum);
            operands.push_back(sum ? build.one("sum", {inputs.back()}, {{"dims", Ints{0}}}, {}) : inputs.back());
        }
        build.add(c.kind, operands, c.attributes, {});
    }

    /// How many placements an input may have on one axis: R, or S(d).
    size_t choices(size_t k) const { return program.value(inputs[k]).type.shape.size() + 1; }
};

/// Checks one choice of placements, unless a dim does not divide. Returns whether it ran.
bool check(const Case& c, const Small& small, const Mesh& mesh, const std::vector<std::vector<int>>& placements,
           const std::vector<Array>& expected, const Fill& fill) {
    Program marked = small.program;
    for (size_t a = 0; a < mesh.axes().size(); ++a)
        for (size_t k = 0; k < small.inputs.size(); ++k)
            if (placements[a][k] > 0)
                marked.store(small.inputs[k], mesh.axes()[a].name, Placement::split(placements[a][k] - 1), {});
    Program propagated;
    try {
        propagated = distribute(marked, mesh);
    } catch (const Error&) {
        return false;  // uneven: refused, as the next test case checks
    }
    INFO(c.kind << " on " << mesh.text());
    MeshInterpreter(propagated, mesh, fill).compare(expected);
    return true;
}

Fill fill_of(const Case& c) {
    return c.positive ? Fill(fill_positive) : [](const Value& value, ValueId id) { return fill_small(value, id); };
}

}  // namespace

TEST_CASE("every op of the table has a case here") {
    for (const OpDef* def : all_ops()) {
        INFO(def->name);
        CHECK((def->collective ||
               std::any_of(cases.begin(), cases.end(), [&](const Case& c) { return c.kind == def->name; })));
    }
}

TEST_CASE("every op is right in every layout on one axis") {
    for (int64_t size : {2, 3}) {
        const Mesh mesh({{"tp", size}});
        for (const Case& c : cases) {
            const auto floats = static_cast<uint32_t>(c.inputs.size());
            int ran = 0;
            // No operand partial, each alone, all of them.
            std::vector<uint32_t> patterns{0};
            if (c.kind != "adamw")
                for (uint32_t k = 0; k < floats; ++k) patterns.push_back(1u << k);
            if (floats > 1) patterns.push_back((1u << floats) - 1);
            for (uint32_t sums : patterns) {
                const Small small(c, sums);
                const Fill fill = fill_of(c);
                const std::vector<Array> expected = evaluate(small.program, fill);
                int64_t all = 1;
                for (size_t k = 0; k < small.inputs.size(); ++k) all *= static_cast<int64_t>(small.choices(k));
                const int64_t step = all <= 200 ? 1 : all / 150 | 1;
                for (int64_t pick = 0; pick < all; pick += step) {
                    std::vector<std::vector<int>> placements(1);
                    int64_t rest = pick;
                    for (size_t k = 0; k < small.inputs.size(); ++k) {
                        placements[0].push_back(static_cast<int>(rest % static_cast<int64_t>(small.choices(k))));
                        rest /= static_cast<int64_t>(small.choices(k));
                    }
                    ran += check(c, small, mesh, placements, expected, fill);
                }
            }
            INFO(c.kind);
            CHECK(ran > 0);
        }
    }
}

TEST_CASE("every op is right in drawn layouts on two and three axes, with ordered splits") {
    uint32_t state = 12345;
    const auto draw = [&](size_t n) {
        state = state * 1664525u + 1013904223u;
        return static_cast<size_t>(state >> 16) % n;
    };
    for (const Mesh& mesh :
         {Mesh({{"dp", 2}, {"tp", 2}}), Mesh({{"dp", 2}, {"tp", 3}}), Mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}})}) {
        for (const Case& c : cases) {
            for (int round = 0; round < 12; ++round) {
                const Small small(c, c.kind == "adamw" ? 0 : static_cast<uint32_t>(draw(4)));
                const Fill fill = fill_of(c);
                const std::vector<Array> expected = evaluate(small.program, fill);
                std::vector<std::vector<int>> placements(mesh.axes().size());
                for (auto& axis : placements)
                    for (size_t k = 0; k < small.inputs.size(); ++k)
                        axis.push_back(static_cast<int>(draw(small.choices(k))));
                check(c, small, mesh, placements, expected, fill);
            }
        }
    }
}

namespace {

std::vector<double> sorted(const Array& array) {
    std::vector<double> all(array.f64(), array.f64() + array.type.count());
    std::sort(all.begin(), all.end());
    return all;
}

double combined(ReduceOp how, double a, double b) {
    return how == ReduceOp::sum ? a + b : how == ReduceOp::max ? std::max(a, b) : std::min(a, b);
}

/// All values of the case's program, where each element of input `k` is `times` what it was.
std::vector<Array> values_of(const Case& c, const Small& small, size_t k, double times) {
    return evaluate(small.program, [&](const Value& value, ValueId id) {
        Array array = fill_of(c)(value, id);
        if (id == small.inputs[k])
            for (int64_t e = 0; e < array.type.count(); ++e) array.f64()[e] *= times;
        return array;
    });
}

}  // namespace

TEST_CASE("traits of ops are true of what their kernels do") {
    std::set<std::string> seen;
    for (const Case& c : cases) {
        const OpDef& def = op_def(c.kind);
        if (c.inputs.empty() || c.inputs[0].dtype != DType::f32) continue;
        INFO(c.kind);
        const Small small(c, 0);
        const std::vector<Array> values = values_of(c, small, 0, 1);
        const auto value = [&](ValueId id) -> const Array& { return values[static_cast<size_t>(id)]; };
        const Array& y = value(small.program.ops[0].outputs[0]);
        if (def.moves != Moves::no) {
            std::vector<double> from;
            for (ValueId input : small.inputs)
                for (double element : sorted(value(input))) from.push_back(element);
            std::sort(from.begin(), from.end());
            const std::vector<double> to = sorted(y);
            CHECK((def.moves == Moves::cuts || to == from));
            CHECK(std::includes(from.begin(), from.end(), to.begin(), to.end()));
            seen.insert("moves");
        }
        if (def.reduces) {
            CHECK(y.type.count() < value(small.inputs[0]).type.count());
            seen.insert("reduces");
        }
        if (def.combines && c.inputs[0] == c.inputs[1]) {
            const double *const a = value(small.inputs[0]).f64(), *const b = value(small.inputs[1]).f64();
            for (int64_t e = 0; e < y.type.count(); ++e) CHECK(y.f64()[e] == combined(*def.combines, a[e], b[e]));
            seen.insert("combines");
        }
        for (int k : def.multiplies) {
            const std::vector<Array> doubled = values_of(c, small, static_cast<size_t>(k), 2);
            const Array& twice = doubled[static_cast<size_t>(small.program.ops[0].outputs[0])];
            CHECK(y.type.count() == value(small.inputs[static_cast<size_t>(k)]).type.count());
            for (int64_t e = 0; e < y.type.count(); ++e) CHECK(twice.f64()[e] == 2 * y.f64()[e]);
            seen.insert("multiplies");
        }
    }
    CHECK(seen.size() == 4);
}
