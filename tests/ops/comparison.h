// Kernels against the reference, in every type that they run in.
#pragma once
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "call.h"
#include "orrery/half.h"

namespace orrery::op_tests {

/// Relative error of norms that a result of this type may have.
inline double tolerance(DType type) { return type == DType::bf16 ? 1e-2 : type == DType::f16 ? 1e-3 : 1e-5; }

inline constexpr size_t guard_bytes = 64;
inline constexpr char guard = 0x5a;

/// One operand of a kernel, followed by a guard.
struct Buffer {
    TensorType type;
    std::vector<char> data;

    explicit Buffer(const TensorType& t) : type(t), data(static_cast<size_t>(t.bytes()) + guard_bytes, guard) {}
    Tensor tensor() { return {data.data(), type.dtype, type.shape}; }
    bool guarded() const {
        return std::all_of(data.end() - guard_bytes, data.end(), [](char c) { return c == guard; });
    }
    bool operator==(const Buffer& other) const { return data == other.data; }

    template <class T>
    T get(int64_t i) const {
        T x;
        std::memcpy(&x, data.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
        return x;
    }
    template <class T>
    void set(int64_t i, T x) {
        std::memcpy(data.data() + static_cast<size_t>(i) * sizeof(T), &x, sizeof(T));
    }
    void write(const test::Array& from) {
        for (int64_t i = 0; i < type.count(); ++i) switch (type.dtype) {
                case DType::f32: set(i, static_cast<float>(from.f64()[i])); break;
                case DType::bf16: set(i, narrow_bf16(static_cast<float>(from.f64()[i]))); break;
                case DType::f16: set(i, narrow_f16(static_cast<float>(from.f64()[i]))); break;
                default: std::memcpy(data.data(), from.data.data(), from.data.size()); return;
            }
    }
    test::Array read() const {
        test::Array to(test::widened(type));
        for (int64_t i = 0; i < type.count(); ++i) switch (type.dtype) {
                case DType::f32: to.f64()[i] = static_cast<double>(get<float>(i)); break;
                case DType::bf16: to.f64()[i] = static_cast<double>(widen_bf16(get<uint16_t>(i))); break;
                case DType::f16: to.f64()[i] = static_cast<double>(widen_f16(get<uint16_t>(i))); break;
                default: std::memcpy(to.data.data(), data.data(), to.data.size()); return to;
            }
        return to;
    }
};

/// One way to run kernels.
struct Way {
    std::string name;  ///< "3 threads"
    std::function<std::string(const KernelSpec&)> why_not;
    std::function<void(const KernelSpec&, std::span<const Tensor> operands)> run;
};

/// A call by each of `ways` against the reference.
struct Comparison {
    const Way& reference;
    const std::vector<Way>& ways;
    const Call& call;
    const Program& program;
    KernelSpec spec;
    std::vector<Buffer> inputs, before;  ///< what outputs hold before the launch
    std::vector<test::Array> expected;

    Comparison(const Way& right, const std::vector<Way>& tested, const Call& c, const Program& p)
        : reference(right), ways(tested), call(c), program(p), spec(spec_of(p)) {
        for (size_t i = 0; i < spec.inputs.size(); ++i) {
            inputs.emplace_back(spec.inputs[i]);
            inputs.back().write(call.draw(i, spec.inputs[i]));
        }
        for (const TensorType& type : spec.outputs) {
            before.emplace_back(type);
            test::Array unwritten(test::widened(type));  // not a number: an element that is not written is found
            if (is_float(type.dtype)) std::fill_n(unwritten.f64(), unwritten.type.count(), std::nan(""));
            before.back().write(unwritten);
            expected.emplace_back(test::widened(type));
        }
        expect();
    }

    /// The reference's result: in these types where it takes them (sums that an op rounds on its way are rounded then),
    /// else in f64.
    void expect() {
        if (reference.why_not(spec).empty()) {
            const std::vector<Buffer> made = launch(reference, spec, before);
            for (size_t o = 0; o < made.size(); ++o) expected[o] = made[o].read();
            return;
        }
        std::vector<test::Array> exact;
        for (const Buffer& input : inputs) exact.push_back(input.read());
        std::vector<test::Array*> in, out;
        for (test::Array& array : exact) in.push_back(&array);
        for (test::Array& array : expected) out.push_back(&array);
        test::run_op(program.ops[0], in, out);
    }

    std::vector<Buffer> launch(const Way& way, const KernelSpec& what, std::vector<Buffer> outputs) const {
        std::vector<Buffer> copies = inputs;
        std::vector<Tensor> operands;
        for (Buffer& input : copies) operands.push_back(input.tensor());
        for (Buffer& output : outputs) operands.push_back(output.tensor());
        way.run(what, operands);
        for (size_t i = 0; i < copies.size(); ++i) {
            INFO("input " << i << " was written");
            CHECK(copies[i] == inputs[i]);
        }
        return outputs;
    }

    void close(const Buffer& got, const test::Array& want) const {
        CHECK(got.guarded());
        const test::Array have = got.read();
        if (!is_float(got.type.dtype)) {
            CHECK(have.data == want.data);
            return;
        }
        double error = 0, norm = 0;
        for (int64_t i = 0; i < want.type.count(); ++i) {
            const double g = have.f64()[i], e = want.f64()[i];
            if (!std::isfinite(e)) {
                if (!(g == e || (std::isnan(g) && std::isnan(e)))) FAIL_CHECK("element " << i << " is " << g);
                continue;
            }
            error += (g - e) * (g - e);
            norm += e * e;
        }
        CHECK(std::sqrt(error) <= tolerance(got.type.dtype) * std::sqrt(norm));
    }

    void check() const {
        for (const Way& way : ways) {
            const std::vector<Buffer> got = launch(way, spec, before);
            const std::vector<Buffer> again = launch(way, spec, before);
            for (size_t o = 0; o < got.size(); ++o) {
                INFO("output " << o << " of type " << got[o].type.text() << ", " << way.name);
                close(got[o], expected[o]);
                CHECK(got[o] == again[o]);
            }
        }
        check_in_place();
        check_accumulate();
    }

    /// An output in the memory of the input that `in_place` names has the same bits.
    void check_in_place() const {
        const std::vector<Buffer> apart = launch(ways[0], spec, before);
        for (const auto& [output, input] : call.def->in_place) {
            const auto o = static_cast<size_t>(output), i = static_cast<size_t>(input);
            if (o >= spec.outputs.size() || i >= spec.inputs.size() || spec.outputs[o] != spec.inputs[i]) continue;
            std::vector<Buffer> copies = inputs, outputs = before;
            std::vector<Tensor> operands;
            for (Buffer& buffer : copies) operands.push_back(buffer.tensor());
            for (Buffer& buffer : outputs) operands.push_back(buffer.tensor());
            operands[spec.inputs.size() + o] = copies[i].tensor();
            ways[0].run(spec, operands);
            INFO("output " << o << " in place of input " << i);
            CHECK(copies[i] == apart[o]);
        }
    }

    /// With `accumulate` a kernel adds to what there is, where the device takes it.
    void check_accumulate() const {
        if (call.def->accumulates.empty()) return;
        KernelSpec adding = spec;
        adding.attributes.set("accumulate", true);
        if (!ways[0].why_not(adding).empty()) return;
        std::vector<Buffer> outputs = before;
        std::vector<test::Array> sums = expected;
        for (const int output : call.def->accumulates) {
            const auto o = static_cast<size_t>(output);
            if (o >= spec.outputs.size()) continue;  // an optional one that this call does not have
            const test::Array there = test::drawn(spec.outputs[o], {}, 99);
            outputs[o].write(there);
            const test::Array rounded = outputs[o].read();
            for (int64_t e = 0; e < there.type.count(); ++e) sums[o].f64()[e] += rounded.f64()[e];
        }
        const std::vector<Buffer> got = launch(ways[0], adding, outputs);
        for (size_t o = 0; o < got.size(); ++o) {
            INFO("output " << o << ", accumulated");
            close(got[o], sums[o]);
        }
    }
};

}  // namespace orrery::op_tests
