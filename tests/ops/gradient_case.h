// A program around one op or a few, and its gradients against five-point central differences, in f64 over the reference
// kernels.
#pragma once
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compile/passes/differentiate.h"
#include "draw.h"
#include "interpreter.h"
#include "ir/build.h"
#include "ir/check_program.h"
#include "ir/describe.h"

namespace orrery::test {

/// Params are what is perturbed; `weigh` adds sum(y * random) to the loss.
class GradientCase {
public:
    /// `inside`: the op reads what another op made of the params.
    explicit GradientCase(bool inside) : build_(program_), inside_(inside) {}

    Builder& builder() { return build_; }
    const TensorType& type(ValueId id) const { return program_.value(id).type; }

    /// A param as the op reads it. `dims`: none for names by size.
    ValueId param(Shape shape, const std::optional<Draw>& draw = {}, std::vector<std::string> dims = {}) {
        if (dims.empty()) dims = names(shape);
        const ValueId p = build_.param(fmt::format("p{}", next_++), {DType::f32, std::move(shape)}, dims, {}, {});
        draws_[p] = draw;
        return inside_ ? one("scale", {p}, {{"by", 1.0}}) : p;
    }
    ValueId named(std::string_view name, Shape shape, std::vector<std::string> dims) {
        return build_.param(name, {DType::f32, std::move(shape)}, std::move(dims), {}, {});
    }
    ValueId data(TensorType type, const std::optional<Draw>& draw = {}, std::vector<std::string> dims = {}) {
        const ValueId id = build_.input(fmt::format("in{}", next_++), std::move(type), std::move(dims), {});
        draws_[id] = draw;
        return id;
    }
    std::vector<ValueId> add(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {}) {
        return build_.add(kind, std::move(inputs), std::move(attributes), {});
    }
    ValueId one(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes = {}) {
        return add(kind, std::move(inputs), std::move(attributes))[0];
    }

    void weigh(ValueId y) {
        const ValueId r = data(type(y));
        program_.value(r).dims = program_.value(y).dims;
        plus(summed(one("mul", {y, r})));
    }
    /// The plain sum: its gradient stays a constant until an op needs it.
    void total(ValueId y) { plus(summed(y)); }
    void plus(ValueId scalar) { loss_ = loss_ == none ? scalar : one("add", {loss_, scalar}); }

    /// "" when the loss has a gradient, else why there is none.
    std::string refused() const {
        Program full = program_;
        try {
            differentiate(full, loss_);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    }

    /// Compares the gradient of every param, and returns how many have one; those without must have none in numbers.
    int check() {
        Program full = program_;
        const std::vector<ValueId> gradients = differentiate(full, loss_);
        check_program(full);
        check_names(full, gradients);
        std::map<ValueId, Array> contents = filled();
        const auto values = evaluate(full, [&](const Value&, ValueId id) { return contents.at(id); });
        int found = 0;
        for (ValueId param : program_.params()) {
            const ValueId grad = full.grad_of(param);
            INFO("gradient of " << describe(full, param) << (grad == none ? ": there is none" : ""));
            found += grad != none;
            compare(contents, param, grad == none ? nullptr : &values[static_cast<size_t>(grad)]);
            if (grad != none) CHECK(full.value(grad).dims == program_.value(param).dims);
        }
        return found;
    }

    /// The largest slope of the loss in any element of any param, in numbers alone.
    double steepest() {
        std::map<ValueId, Array> contents = filled();
        double largest = 0;
        for (ValueId param : program_.params())
            for (int64_t i = 0; i < type(param).count(); ++i)
                largest = std::max(largest, std::abs(slope(contents, param, i)));
        return largest;
    }

private:
    /// A name for each size; one of size 1, which goes with all, has a name of its own that its gradient must have,
    /// too.
    static std::vector<std::string> names(const Shape& shape) {
        std::vector<std::string> dims;
        for (const int64_t size : shape)
            dims.push_back(size == 1 ? fmt::format("one{}", dims.size()) : fmt::format("n{}", size));
        return dims;
    }

    ValueId summed(ValueId y) {
        const ValueId sum = one("sum", {y});
        return type(sum).dtype == DType::f32 ? sum : one("cast", {sum}, {{"dtype", std::string("f32")}});
    }

    static void check_names(const Program& full, const std::vector<ValueId>& gradients) {
        for (size_t i = 0; i < gradients.size(); ++i) {
            if (gradients[i] == none || full.values[i].role == Role::param) continue;
            INFO(describe(full, static_cast<ValueId>(i)) << " and its gradient " << describe(full, gradients[i]));
            CHECK(full.values[i].type.shape == full.value(gradients[i]).type.shape);
            CHECK(full.values[i].dims == full.value(gradients[i]).dims);
        }
    }

    Array fill(ValueId id) const {
        const auto found = draws_.find(id);
        return drawn(program_.value(id).type, found == draws_.end() ? std::nullopt : found->second,
                     static_cast<unsigned>(7 + id));
    }

    std::map<ValueId, Array> filled() const {
        std::map<ValueId, Array> contents;
        for (size_t i = 0; i < program_.values.size(); ++i)
            if (program_.values[i].role != Role::temporary)
                contents[static_cast<ValueId>(i)] = fill(static_cast<ValueId>(i));
        return contents;
    }

    void compare(std::map<ValueId, Array>& contents, ValueId param, const Array* analytic) const {
        if (analytic) REQUIRE(analytic->type.shape == type(param).shape);
        double largest = 0, worst = 0;
        for (int64_t i = 0; i < type(param).count(); ++i) {
            const double expected = slope(contents, param, i);
            largest = std::max(largest, std::abs(expected));
            const double error = std::abs(expected - (analytic ? analytic->f64()[i] : 0));
            worst = std::isfinite(error) ? std::max(worst, error) : HUGE_VAL;
        }
        CHECK(worst <= 1e-6 * largest * (analytic ? 1 : 0) + 1e-10);
    }

    double loss(const std::map<ValueId, Array>& contents) const {
        const auto values = evaluate(program_, [&](const Value&, ValueId id) { return contents.at(id); });
        return values[static_cast<size_t>(loss_)].f64()[0];
    }

    double slope(std::map<ValueId, Array>& contents, ValueId param, int64_t i) const {
        constexpr double h = 3e-4;
        double& x = contents.at(param).f64()[i];
        const double middle = x;
        auto at = [&](double offset) {
            x = middle + offset;
            return loss(contents);
        };
        const double result = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
        x = middle;
        return result;
    }

    Program program_;
    Builder build_;
    const bool inside_;
    std::map<ValueId, std::optional<Draw>> draws_;
    ValueId loss_ = none;
    int next_ = 0;
};

}  // namespace orrery::test
