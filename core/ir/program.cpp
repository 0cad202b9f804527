#include "orrery/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/text.h"
#include "ir/op.h"
#include "orrery/mesh.h"

namespace orrery {

namespace {

std::string shown(const Program& program, ValueId id) {
    const Value& value = program.value(id);
    return value.name.empty() ? fmt::format("%{} {}", id, value.type.text())
                              : fmt::format("{} {}", value.name, value.type.text());
}

void check_split(const Program& program, const Mark& mark) {
    if (mark.placement.kind != Placement::Kind::split) return;
    const auto rank = static_cast<int>(program.value(mark.value).type.shape.size());
    if (mark.placement.dim < 0 || mark.placement.dim >= rank) {
        throw Error(mark.origin, fmt::format("cannot split dim {} of {} over {}: it has {} dims", mark.placement.dim,
                                             shown(program, mark.value), mark.axis, rank));
    }
}

template <class Accept>
std::vector<ValueId> select(const Program& program, Accept accept) {
    std::vector<ValueId> ids;
    for (size_t i = 0; i < program.values.size(); ++i) {
        if (accept(program.values[i])) ids.push_back(i);
    }
    return ids;
}

void collect_terms(const Program& program, ValueId sum, std::vector<ValueId>& terms) {
    const Value& total = program.value(sum);
    if (total.op == none || !is_sum(op_def(program.op(total.op).kind))) return;
    for (ValueId term : program.op(total.op).inputs) {
        if (program.value(term).op == none || program.value(term).type != total.type) continue;
        terms.push_back(term);
        collect_terms(program, term, terms);
    }
}

}  // namespace

std::vector<ValueId> Program::inputs() const {
    return select(*this, [](const Value& v) { return v.role == Role::input; });
}

std::vector<ValueId> Program::params() const {
    return select(*this, [](const Value& v) { return v.role == Role::param; });
}

std::vector<ValueId> Program::states_of(ValueId param) const {
    return select(*this, [&](const Value& v) { return v.role == Role::state && v.of == param; });
}

ValueId Program::grad_of(ValueId param) const {
    const size_t at = param;
    if (at >= grad_at_.size() || grad_at_[at] == none) return none;
    return grads_[grad_at_[at]].second;
}

void Program::set_grad(ValueId param, ValueId grad) {
    const size_t at = param;
    if (at >= grad_at_.size()) grad_at_.resize(at + 1, none);
    if (grad_at_[at] != none) {
        grads_[grad_at_[at]].second = grad;
    } else {
        grad_at_[at] = grads_.size();
        grads_.emplace_back(param, grad);
    }
}

std::vector<ValueId> Program::grad_terms(ValueId param) const {
    std::vector<ValueId> terms;
    if (const ValueId grad = grad_of(param); grad != none) collect_terms(*this, grad, terms);
    return terms;
}

std::vector<bool> Program::params_with_low_copies() const {
    std::vector<bool> low(values.size());
    for (const Op& op : ops) {
        if (op.phase != Phase::forward || !op_def(op.kind).casts) continue;
        const Value& from = value(op.inputs[0]);
        const Value& to = value(op.outputs[0]);
        if (from.role == Role::param && size_of(to.type.dtype) < size_of(from.type.dtype)) low[op.inputs[0]] = true;
    }
    return low;
}

std::optional<ValueId> Program::find(std::string_view value_name) const {
    for (size_t i = 0; i < values.size(); ++i) {
        if (values[i].name == value_name) return i;
    }
    return std::nullopt;
}

std::optional<ValueId> Program::result(std::string_view result_name) const {
    for (const Result& r : results) {
        if (r.name == result_name) return r.value;
    }
    return std::nullopt;
}

std::optional<int> Program::dim(ValueId id, std::string_view dim_name) const {
    const auto& dims = value(id).dims;
    const auto place = std::find(dims.begin(), dims.end(), dim_name);
    if (place == dims.end()) return std::nullopt;
    return static_cast<int>(place - dims.begin());
}

std::optional<int> Program::first_dim_divisible_by(ValueId id, int64_t n, const Mesh& mesh) const {
    assert(n >= 1);
    const Shape& shape = value(id).type.shape;
    std::vector<int64_t> parts(shape.size(), n);
    if (static_cast<size_t>(id) < marks_of_.size())
        for (int place : marks_of_[id]) {
            const Mark& mark = marks_[place];
            if (mark.what == Mark::What::store && mark.placement.kind == Placement::Kind::split)
                parts[mark.placement.dim] *= mesh.size(mark.axis);
        }
    for (size_t dim = 0; dim < shape.size(); ++dim)
        if (shape[dim] % parts[dim] == 0) return dim;
    return std::nullopt;
}

void Program::mark(Mark mark) {
    check_split(*this, mark);
    if (marks_of_.size() < values.size()) marks_of_.resize(values.size());
    auto& places = marks_of_.at(mark.value);
    for (int place : places) {
        const Mark& earlier = marks_[place];
        if (earlier.what != mark.what || earlier.axis != mark.axis) continue;
        if (earlier.placement != mark.placement || earlier.keep != mark.keep) ignored_.push_back(std::move(mark));
        return;
    }
    places.push_back(marks_.size());
    marks_.push_back(std::move(mark));
}

void Program::store(ValueId value, std::string_view axis, Placement placement, const Origin& origin, bool optional) {
    mark({value, Mark::What::store, std::string(axis), placement, Keep::step, optional, origin});
}

void Program::use(ValueId value, std::string_view axis, Placement placement, const Origin& origin, Keep keep,
                  bool optional) {
    mark({value, Mark::What::use, std::string(axis), placement, keep, optional, origin});
}

void Program::stage(std::string_view scope, int stage, const Origin& origin) {
    for (const ScopeMark& mark : scope_marks_) {
        if (mark.stage == none || mark.scope != scope) continue;
        if (mark.stage != stage)
            note(none,
                 fmt::format("stage {} for scope {} is ignored: an earlier mark put it on stage {}", stage, scope,
                             mark.stage),
                 origin);
        return;
    }
    scope_marks_.push_back({std::string(scope), stage, false, origin, {}});
}

void Program::recompute(std::string_view scope, const Origin& origin, const std::vector<std::string>& kinds) {
    for (const ScopeMark& mark : scope_marks_) {
        if (mark.recompute && mark.scope == scope && mark.kinds == kinds) return;
    }
    scope_marks_.push_back({std::string(scope), none, true, origin, kinds});
}

void Program::note(ValueId value, std::string_view text, const Origin& origin) {
    remarks_.push_back({value, std::string(text), origin});
}

void Program::microbatches(int64_t n, const Origin& origin) {
    if (n < 1) throw Error(origin, fmt::format("cannot split the batch into {} micro-batches, expected at least 1", n));
    if (microbatches_ != 1 && n != microbatches_) {
        throw Error(origin,
                    fmt::format("{} micro-batches requested, but the step has {} already, by train.microbatches, "
                                "train_with or an earlier strategy: use one number",
                                n, microbatches_));
    }
    microbatches_ = n;
}

void Program::pipeline(Pipeline pipeline) {
    if (!pipeline_.axis.empty() && (pipeline.axis != pipeline_.axis || pipeline.schedule != pipeline_.schedule ||
                                    pipeline.chunks != pipeline_.chunks)) {
        throw Error(pipeline.origin,
                    fmt::format("pipeline over {} ({}, {} chunks) requested, but an earlier strategy chose {} ({}, "
                                "{} chunks): use one",
                                pipeline.axis, pipeline.schedule, pipeline.chunks, pipeline_.axis, pipeline_.schedule,
                                pipeline_.chunks));
    }
    pipeline_ = std::move(pipeline);
}

}  // namespace orrery
