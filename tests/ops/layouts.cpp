// Soundness of the factor rules: every sample, run sharded on a mesh in every layout of its operands, gives what one
// device gives.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "chosen.h"
#include "compile/pipeline.h"
#include "ir/build.h"
#include "ir/print.h"
#include "mesh_interpreter.h"

using namespace orrery;
using namespace orrery::op_tests;
using orrery::test::Array;
using orrery::test::Fill;
using orrery::test::MeshInterpreter;

namespace {

/// A call over inputs. An operand whose bit is set in `summed` is the sum of an input over a leading dim of 4, which a
/// split makes partial.
struct Small {
    Program program;
    std::vector<ValueId> inputs;
    Fill fill;
    std::vector<Array> expected;

    Small(const Call& call, uint32_t sums) {
        Builder build(program);
        std::vector<ValueId> operands;
        for (size_t k = 0; k < call.sample.operands.size(); ++k) {
            TensorType type = call.sample.operands[k];
            const bool sum = type.dtype == DType::f32 && (sums >> k & 1) != 0;
            if (sum) type.shape.insert(type.shape.begin(), 4);
            inputs.push_back(
                build.input("x" + std::to_string(k), type, std::vector<std::string>(type.shape.size()), {}));
            operands.push_back(sum ? build.one("sum", {inputs.back()}, {{"dims", std::vector<int64_t>{0}}}, {})
                                   : inputs.back());
        }
        build.add(call.def->name, operands, call.sample.attributes, {});
        fill = [call](const Value& value, ValueId id) {  // inputs may be later values than their place
            const auto k = static_cast<size_t>(std::stoi(value.name.substr(1)));
            return call.draw(k, value.type, static_cast<unsigned>(id));
        };
        expected = test::evaluate(program, fill);
    }

    const Op& op() const { return program.ops.back(); }
    /// How many placements an input may have on one axis: R, or S(d).
    size_t choices(size_t k) const { return program.value(inputs[k]).type.shape.size() + 1; }
};

/// Compares one choice of placements with one device, unless a dim does not divide. Returns whether it ran.
bool check(const Call& call, const Small& small, const Mesh& mesh, const std::vector<std::vector<int>>& placements) {
    Program marked = small.program;
    for (size_t a = 0; a < mesh.axes().size(); ++a)
        for (size_t k = 0; k < small.inputs.size(); ++k)
            if (placements[a][k] > 0)
                marked.store(small.inputs[k], mesh.axes()[a].name, Placement::split(placements[a][k] - 1), {});
    Program propagated;
    try {
        propagated = distribute(marked, mesh);
    } catch (const Error&) {
        return false;  // uneven: refused
    }
    INFO(call.text() << " on " << mesh.text());
    MeshInterpreter(propagated, mesh, small.fill).compare(small.expected);
    return true;
}

/// All layouts of all operands, or 150 of them, whole and partial: none, each alone, all.
int check_on_one_axis(const Call& call, const Mesh& mesh) {
    const auto operands = static_cast<uint32_t>(call.sample.operands.size());
    std::vector<uint32_t> patterns{0};
    for (uint32_t k = 0; k < operands; ++k)
        if (call.sample.operands[k].dtype == DType::f32) patterns.push_back(1u << k);
    if (operands > 1) patterns.push_back((1u << operands) - 1);
    int ran = 0;
    for (uint32_t sums : patterns) {
        const Small small(call, sums);
        int64_t all = 1;
        for (size_t k = 0; k < operands; ++k) all *= static_cast<int64_t>(small.choices(k));
        const int64_t step = all <= 200 ? 1 : all / 150 | 1;
        for (int64_t pick = 0; pick < all; pick += step) {
            std::vector<int> placements;
            int64_t rest = pick;
            for (size_t k = 0; k < operands; ++k) {
                placements.push_back(static_cast<int>(rest % static_cast<int64_t>(small.choices(k))));
                rest /= static_cast<int64_t>(small.choices(k));
            }
            ran += check(call, small, mesh, {placements});
        }
    }
    return ran;
}

/// Whether the factor is a minor part of a dim: its shards are no blocks.
bool minor(const std::vector<FactorRule::Dims>& operands, int factor) {
    for (const FactorRule::Dims& dims : operands)
        for (const std::vector<int>& factors : dims)
            if (std::find(factors.begin(), factors.end(), factor) > factors.begin() &&
                std::count(factors.begin(), factors.end(), factor) > 0)
                return true;
    return false;
}

/// Whether a split of the factor is legal for all outputs: one that lacks it must be a sum of the shards'.
bool in_outputs(const FactorRule& rule, int factor) {
    const auto has = [&](const FactorRule::Dims& dims) {
        return std::any_of(dims.begin(), dims.end(), [&](const std::vector<int>& factors) {
            return std::find(factors.begin(), factors.end(), factor) != factors.end();
        });
    };
    return rule.factors[static_cast<size_t>(factor)].kind != Factor::Kind::parallel ||
           std::all_of(rule.outputs.begin(), rule.outputs.end(), has);
}

/// The dims of which a factor is the major part.
std::vector<int> blocks_of(const FactorRule::Dims& dims, int factor) {
    std::vector<int> found;
    for (size_t d = 0; d < dims.size(); ++d)
        if (!dims[d].empty() && dims[d][0] == factor) found.push_back(static_cast<int>(d));
    return found;
}

/// Asks for a split of one factor wherever it is the major part of a dim, and looks whether the op, or its
/// decomposition, then runs so: that a layout comes out right by being gathered first would prove nothing. Returns
/// whether there is such a dim.
bool check_factor(const Call& call, const Small& small, const FactorRule& rule, int factor, const Mesh& mesh) {
    Program marked = small.program;
    const Op& op = small.op();
    size_t wanted = 0;
    const auto mark = [&](const std::vector<ValueId>& values, const std::vector<FactorRule::Dims>& dims) {
        for (size_t k = 0; k < values.size(); ++k)
            for (const int d : blocks_of(dims[k], factor)) {
                marked.store(values[k], "tp", Placement::split(d), {});
                ++wanted;
            }
    };
    mark(op.inputs, rule.inputs);
    mark(op.outputs, rule.outputs);
    if (wanted == 0 || minor(rule.inputs, factor) || minor(rule.outputs, factor) || !in_outputs(rule, factor))
        return false;
    INFO(call.text() << ", factor " << factor << " of " << rule.factors[static_cast<size_t>(factor)].size << " on "
                     << mesh.text());
    const Program propagated = distribute(marked, mesh);
    size_t split = 0;
    for (const Op& made : propagated.ops) {
        if (made.kind != op.kind) continue;  // what is added once, a bias, may have become an op of its own
        const auto count = [&](const std::vector<ValueId>& values, const std::vector<FactorRule::Dims>& dims) {
            for (size_t k = 0; k < values.size(); ++k)
                for (const int d : blocks_of(dims[k], factor))
                    split += propagated.value(values[k]).layout.at(0) == Placement::split(d);
        };
        count(made.inputs, rule.inputs);
        count(made.outputs, rule.outputs);
    }
    INFO(print(propagated, &mesh));
    const auto of_kind = [&](const Op& made) { return made.kind == op.kind; };
    const auto gathers = [&](const Op& made) {
        const auto moved = op_def(made.kind).collective;
        return moved == Opcode::all_gather || moved == Opcode::all_to_all;
    };
    if (call.def->decompose && std::ranges::none_of(propagated.ops, of_kind))  // made of ops that work on the split
        CHECK(std::ranges::none_of(propagated.ops, gathers));
    else
        CHECK(split == wanted);
    MeshInterpreter(propagated, mesh, small.fill).compare(small.expected);
    return true;
}

/// Asks for each split of each output, the operands being whole, or split over another axis.
void check_stored(const Call& call, int64_t size) {
    const Mesh mesh({{"dp", 2}, {"tp", size}});
    const Small small(call, 0);
    for (const ValueId made : small.op().outputs)
        for (size_t dim = 0; dim < small.program.value(made).type.shape.size(); ++dim)
            for (const bool whole : {true, false}) {
                Program marked = small.program;
                marked.store(made, "tp", Placement::split(static_cast<int>(dim)), {});
                for (const ValueId input : small.inputs)
                    if (!whole && !marked.value(input).type.shape.empty())
                        marked.store(input, "dp", Placement::split(0), {});
                Program propagated;
                try {
                    propagated = distribute(marked, mesh);
                } catch (const Error&) {
                    continue;  // uneven: refused
                }
                INFO(call.text() << " on " << mesh.text() << ", dim " << dim << " of %" << made << " is split");
                MeshInterpreter(propagated, mesh, small.fill).compare(small.expected);
            }
}

}  // namespace

TEST_CASE("every op has samples") {
    for (const OpDef* def : chosen()) {
        INFO(def->name << ": give it `samples` (OpSample in orrery/op.h)");
        CHECK_FALSE(calls_of(*def).empty());
    }
}

TEST_CASE("every factor that a rule lets be split is split rightly") {
    for (const OpDef* def : chosen()) {
        DYNAMIC_SECTION(def->name) {
            int splits = 0, able = 0;
            for (const Call& call : calls_of(*def)) {
                const Small small(call, 0);
                const FactorRule rule = def->rule(small.program, small.op());
                for (size_t f = 0; f < rule.factors.size(); ++f) {
                    const Factor& factor = rule.factors[f];
                    if (factor.kind == Factor::Kind::whole || factor.size == 1) continue;
                    ++able;
                    INFO(call.text() << ": a size of " << factor.size
                                     << " may be split; give a size that 2 or 3 divides");
                    CHECK((factor.size % 2 == 0 || factor.size % 3 == 0));
                    for (const int64_t ranks : {2, 3})
                        if (factor.size % ranks == 0)
                            splits += check_factor(call, small, rule, static_cast<int>(f), Mesh({{"tp", ranks}}));
                }
            }
            CHECK((able == 0 || splits > 0));
        }
    }
}

TEST_CASE("every op is right in every layout on one axis") {
    for (const OpDef* def : chosen()) {
        DYNAMIC_SECTION(def->name) {
            for (const Call& call : calls_of(*def))
                for (const int64_t size : {2, 3}) {
                    INFO(call.text());
                    CHECK(check_on_one_axis(call, Mesh({{"tp", size}})) > 0);
                }
        }
    }
}

TEST_CASE("every op is right where one of its outputs alone is stored split") {
    for (const OpDef* def : chosen()) {
        DYNAMIC_SECTION(def->name) {
            for (const Call& call : calls_of(*def))
                for (const int64_t size : {2, 3}) check_stored(call, size);
        }
    }
}

TEST_CASE("every op is right in drawn layouts on two and three axes with ordered splits") {
    uint32_t state = 12345;
    const auto pick = [&](size_t n) {
        state = state * 1664525u + 1013904223u;
        return static_cast<size_t>(state >> 16) % n;
    };
    for (const Mesh& mesh :
         {Mesh({{"dp", 2}, {"tp", 2}}), Mesh({{"dp", 2}, {"tp", 3}}), Mesh({{"pp", 2}, {"dp", 2}, {"tp", 2}})})
        for (const OpDef* def : chosen())
            for (const Call& call : calls_of(*def))
                for (int round = 0; round < 12; ++round) {
                    const Small small(call, static_cast<uint32_t>(pick(4)));
                    std::vector<std::vector<int>> placements(mesh.axes().size());
                    for (auto& axis : placements)
                        for (size_t k = 0; k < small.inputs.size(); ++k)
                            axis.push_back(static_cast<int>(pick(small.choices(k))));
                    check(call, small, mesh, placements);
                }
}
