// What an op's traits say of it is true of what its reference kernel does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "chosen.h"

using namespace orrery;
using namespace orrery::op_tests;
using orrery::test::Array;

namespace {

std::vector<double> sorted(const Array& array) {
    std::vector<double> all(array.f64(), array.f64() + array.type.count());
    std::sort(all.begin(), all.end());
    return all;
}

double combined(ReduceOp how, double a, double b) {
    return how == ReduceOp::sum ? a + b : how == ReduceOp::max ? std::max(a, b) : std::min(a, b);
}

/// All values of the call's program; the inputs are its first, each element of input `k` is `times` what it was.
std::vector<Array> values_of(const Call& call, const Program& program, size_t k, double times) {
    return test::evaluate(program, [&](const Value& value, ValueId id) {
        Array array = call.draw(static_cast<size_t>(id), value.type);
        if (static_cast<size_t>(id) == k)
            for (int64_t e = 0; e < array.type.count(); ++e) array.f64()[e] *= times;
        return array;
    });
}

/// Returns the traits that were compared.
std::set<std::string> check_traits(const Call& call) {
    std::set<std::string> seen;
    const OpDef& def = *call.def;
    const Program program = call.program();
    const Op& op = program.ops[0];
    const std::vector<Array> values = values_of(call, program, 0, 1);
    const auto value = [&](ValueId id) -> const Array& { return values[static_cast<size_t>(id)]; };
    const Array& y = value(op.outputs[0]);
    if (def.moves != Moves::no) {
        std::vector<double> from;
        for (ValueId input : op.inputs)
            for (double element : sorted(value(input))) from.push_back(element);
        std::sort(from.begin(), from.end());
        const std::vector<double> to = sorted(y);
        CHECK((def.moves == Moves::cuts || to == from));
        CHECK(std::includes(from.begin(), from.end(), to.begin(), to.end()));
        seen.insert("moves");
    }
    if (def.reduces) {
        CHECK(y.type.count() < value(op.inputs[0]).type.count());
        seen.insert("reduces");
    }
    if (def.combines && call.sample.operands[0] == call.sample.operands[1]) {
        const double *const a = value(op.inputs[0]).f64(), *const b = value(op.inputs[1]).f64();
        for (int64_t e = 0; e < y.type.count(); ++e) CHECK(y.f64()[e] == combined(*def.combines, a[e], b[e]));
        seen.insert("combines");
    }
    for (int k : def.multiplies) {
        const auto place = static_cast<size_t>(k);
        // "where the others are single numbers": of more elements than the result has none is asked for.
        if (y.type.count() != value(op.inputs[place]).type.count()) continue;
        const std::vector<Array> doubled = values_of(call, program, place, 2);
        const Array& twice = doubled[static_cast<size_t>(op.outputs[0])];
        for (int64_t e = 0; e < y.type.count(); ++e) CHECK(twice.f64()[e] == 2 * y.f64()[e]);
        seen.insert("multiplies");
    }
    return seen;
}

}  // namespace

TEST_CASE("traits of ops are true of what their kernels do") {
    std::set<std::string> seen;
    for (const OpDef* def : chosen()) {
        std::set<std::string> of_op;
        for (const Call& call : calls_of(*def)) {
            INFO(call.text());
            const auto& types = call.sample.operands;
            if (!types.empty() && std::all_of(types.begin(), types.end(), [](auto& t) { return is_float(t.dtype); }))
                of_op.merge(check_traits(call));
        }
        INFO(def->name << ": a sample must show each trait");
        CHECK((def->moves == Moves::no || of_op.count("moves") == 1));
        CHECK((!def->reduces || of_op.count("reduces") == 1));
        CHECK((!def->combines || of_op.count("combines") == 1));
        CHECK((def->multiplies.empty() || of_op.count("multiplies") == 1));
        seen.merge(of_op);
    }
    CHECK((chosen_by_name() || seen.size() == 4));
}
