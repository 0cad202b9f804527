// Evaluates programs op by op with the reference kernels, every float in f64, so that what is compared differs by the
// order of sums only in the last digits. One device here; a mesh of ranks in mesh_interpreter.h.
#pragma once
#include <cmath>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "ir/op.h"
#include "orrery/device.h"
#include "orrery/program.h"

namespace orrery::test {

/// A dense array with its data. Floats are f64, whatever the program says.
struct Array {
    TensorType type;
    std::vector<char> data;

    Array() = default;
    explicit Array(TensorType t) : type(std::move(t)), data(static_cast<size_t>(type.bytes()), 0) {}
    Tensor tensor() { return {data.data(), type.dtype, type.shape}; }
    double* f64() { return reinterpret_cast<double*>(data.data()); }
    const double* f64() const { return reinterpret_cast<const double*>(data.data()); }
    double i32_at(int64_t i) const { return reinterpret_cast<const int32_t*>(data.data())[i]; }
    int32_t* i32() { return reinterpret_cast<int32_t*>(data.data()); }
};

inline DType widened(DType t) { return is_float(t) ? DType::f64 : t; }
inline TensorType widened(TensorType t) {
    t.dtype = widened(t.dtype);
    return t;
}

/// Runs a spec of f64 operands with the reference kernels: the CPU device's table (reference_table.cpp), or the device
/// itself with what plugins add to it (ops/chosen.cpp).
void run_reference(const KernelSpec& spec, std::span<const Tensor> operands);

/// Runs one op on arrays of (local) shapes. `patch`: attributes that lowering would add (global_shape, offset) or
/// replace (shape).
inline void run_op(const Op& op, std::vector<Array*> inputs, std::vector<Array*> outputs,
                   const Attributes& patch = {}) {
    KernelSpec spec;
    spec.op = op.kind;
    spec.attributes = op.attributes;
    for (const auto& [key, value] : patch.items()) spec.attributes.set(key, value);
    if (spec.attributes.has("dtype")) spec.attributes.set("dtype", std::string("f64"));
    std::vector<Tensor> operands;
    for (Array* array : inputs) {
        spec.inputs.push_back(array->type);
        operands.push_back(array->tensor());
    }
    for (Array* array : outputs) {
        spec.outputs.push_back(array->type);
        operands.push_back(array->tensor());
    }
    run_reference(spec, operands);
}

/// Gives sources (inputs, params, states) their contents; called once per source.
using Fill = std::function<Array(const Value&, ValueId)>;

/// Small dyadic numbers, different for every element; integers below `top`.
inline Array fill_small(const Value& value, ValueId id, int top = 5) {
    Array array(widened(value.type));
    uint32_t state = 2654435761u * static_cast<uint32_t>(id + 1);
    for (int64_t i = 0; i < array.type.count(); ++i) {
        state = state * 1664525u + 1013904223u;
        const uint32_t draw = state >> 16;
        if (array.type.dtype == DType::f64) {
            array.f64()[i] = (static_cast<double>(draw % 31) - 15) / 8;
        } else if (size_of(array.type.dtype) == 4) {
            array.i32()[i] = static_cast<int32_t>(draw % static_cast<uint32_t>(top));
        } else {
            array.data[static_cast<size_t>(i)] = static_cast<char>(draw % 2);
        }
    }
    return array;
}
inline Array fill_positive(const Value& value, ValueId id) {
    Array array = fill_small(value, id);
    if (array.type.dtype == DType::f64)
        for (int64_t i = 0; i < array.type.count(); ++i) array.f64()[i] = std::abs(array.f64()[i]) + 0.25;
    return array;
}

/// Every value of a program without collectives, on one device.
inline std::vector<Array> evaluate(const Program& program, const Fill& fill) {
    std::vector<Array> values(program.values.size());
    for (size_t id = 0; id < values.size(); ++id)
        if (program.values[id].role != Role::temporary) values[id] = fill(program.values[id], static_cast<ValueId>(id));
    for (const Op& op : program.ops) {
        std::vector<Array*> inputs;
        std::vector<Array*> outputs;
        for (ValueId id : op.inputs) inputs.push_back(&values[static_cast<size_t>(id)]);
        for (ValueId id : op.outputs) {
            values[static_cast<size_t>(id)] = Array(widened(program.value(id).type));
            outputs.push_back(&values[static_cast<size_t>(id)]);
        }
        run_op(op, inputs, outputs);
    }
    return values;
}

}  // namespace orrery::test
