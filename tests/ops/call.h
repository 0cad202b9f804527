// One sample of an op as a program, in any type.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "draw.h"
#include "interpreter.h"
#include "ir/build.h"
#include "ir/op.h"
#include "orrery/device.h"

namespace orrery::op_tests {

struct Call {
    const OpDef* def;
    OpSample sample;
    size_t number;  ///< among the op's samples

    std::string text() const { return fmt::format("{}, sample {}", def->name, number); }  ///< "matmul, sample 2"

    /// Operands are inputs, with `params` floats are params; the op is the only one. Names of dims are the sample's;
    /// where it has none, with `named`, after their size: equal sizes must go together.
    Program program(bool params = false, bool named = false) const {
        Program program;
        program.name = "sample";
        Builder build(program);
        std::vector<ValueId> operands;
        for (size_t i = 0; i < sample.operands.size(); ++i) {
            const TensorType& type = sample.operands[i];
            const std::string name = fmt::format("x{}", i);
            const std::vector<std::string> dims = names_of(i, named);
            operands.push_back(params && is_float(type.dtype) ? build.param(name, type, dims, {}, {})
                                                              : build.input(name, type, dims, {}));
        }
        build.add(def->name, operands, sample.attributes, {});
        return program;
    }

    /// What operand i holds, floats in f64; the same at each call. `seed` changes the numbers.
    test::Array draw(size_t operand, const TensorType& type, unsigned seed = 0) const {
        return test::drawn(type, operand < sample.draws.size() ? sample.draws[operand] : std::nullopt,
                           static_cast<unsigned>(7 + operand) + 1000 * seed);
    }

private:
    std::vector<std::string> names_of(size_t operand, bool named) const {
        if (operand < sample.dims.size()) return sample.dims[operand];
        const Shape& shape = sample.operands[operand].shape;
        std::vector<std::string> names(shape.size());
        // A dim of size 1 goes with all others: it has a name of its own, which its gradient must have, too.
        for (size_t d = 0; named && d < shape.size(); ++d)
            names[d] = shape[d] == 1 ? fmt::format("one{}", d) : fmt::format("n{}", shape[d]);
        return names;
    }
};

inline std::vector<Call> calls_of(const OpDef& def) {
    std::vector<Call> calls;
    if (def.samples == nullptr) return calls;
    for (OpSample& sample : def.samples()) calls.push_back({&def, std::move(sample), calls.size()});
    return calls;
}

/// What a device is asked for to run the op of `Call::program`.
inline KernelSpec spec_of(const Program& program) {
    const Op& op = program.ops[0];
    KernelSpec spec{op.kind, op.attributes, {}, {}};
    for (ValueId id : op.inputs) spec.inputs.push_back(program.value(id).type);
    for (ValueId id : op.outputs) spec.outputs.push_back(program.value(id).type);
    return spec;
}

/// The call with as many of its f32 operands in another type as inference and the device take; nothing where they take
/// none, and `why`: their reason. In f32: the call as it is.
inline std::optional<Program> in_type(const Call& call, DType type,
                                      const std::function<std::string(const KernelSpec&)>& why_not, std::string& why) {
    std::vector<size_t> floats;
    for (size_t i = 0; i < call.sample.operands.size() && type != DType::f32; ++i)
        if (call.sample.operands[i].dtype == DType::f32) floats.push_back(i);
    std::vector<uint32_t> sets;
    for (uint32_t set = type == DType::f32 ? 0 : 1; set < 1u << floats.size(); ++set) sets.push_back(set);
    std::stable_sort(sets.begin(), sets.end(),
                     [](uint32_t a, uint32_t b) { return std::popcount(a) > std::popcount(b); });
    why.clear();
    for (const uint32_t set : sets) {
        Call other = call;
        for (size_t k = 0; k < floats.size(); ++k)
            if (set >> k & 1) other.sample.operands[floats[k]].dtype = type;
        Program program;
        try {
            program = other.program();
        } catch (const Error& error) {
            if (type == DType::f32) throw;
            if (why.empty()) why = error.what();
            continue;
        }
        why = why_not(spec_of(program));
        if (why.empty()) return program;
    }
    return std::nullopt;
}

}  // namespace orrery::op_tests
