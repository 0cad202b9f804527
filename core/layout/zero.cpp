// The marks of ZeRO, for the strategies zero and data.
#include "layout/zero.h"

namespace orrery {

std::optional<int> first_dim_to_split(const Program& program, const Mesh& mesh, ValueId value, int64_t n) {
    const Shape& shape = program.value(value).type.shape;
    std::vector<int64_t> parts(shape.size(), n);
    for (const Mark& mark : program.marks())
        if (mark.value == value && mark.what == Mark::What::store && mark.placement.kind == Placement::Kind::split)
            parts[static_cast<size_t>(mark.placement.dim)] *= mesh.size(mark.axis);
    for (size_t dim = 0; dim < shape.size(); ++dim)
        if (shape[dim] % parts[dim] == 0) return static_cast<int>(dim);
    return std::nullopt;
}

namespace {

void collect_terms(const Program& program, ValueId sum, std::vector<ValueId>& terms) {
    const Value& total = program.value(sum);
    if (total.op == none || program.op(total.op).kind != "add") return;
    for (ValueId term : program.op(total.op).inputs) {
        if (program.value(term).op == none || program.value(term).type != total.type) continue;
        terms.push_back(term);
        collect_terms(program, term, terms);
    }
}

}  // namespace

std::vector<ValueId> terms_of_gradient(const Program& program, ValueId param) {
    std::vector<ValueId> terms;
    if (const ValueId grad = program.grad_of(param); grad != none) collect_terms(program, grad, terms);
    return terms;
}

std::vector<char> params_with_low_copies(const Program& program) {
    std::vector<char> low(program.values.size(), 0);
    for (const Op& op : program.ops) {
        if (op.kind != "cast" || op.phase != Phase::forward) continue;
        const Value& from = program.value(op.inputs[0]);
        const Value& to = program.value(op.outputs[0]);
        if (from.role == Role::param && size_of(to.type.dtype) < size_of(from.type.dtype))
            low[static_cast<size_t>(op.inputs[0])] = 1;
    }
    return low;
}

namespace {

/// A gradient that stays a sum over ranks until the micro-batches are done, and is then scattered once.
void scatter_once(Program& program, ValueId grad, const Zero& zero, Placement part, const Origin& origin) {
    program.store(grad, zero.axis, Placement::partial(ReduceOp::sum), origin, true);
    program.use(grad, zero.axis, part, origin);
}

}  // namespace

void mark_zero(Program& program, const Mesh& mesh, const Zero& zero, const Origin& origin) {
    const int64_t n = mesh.size(zero.axis);
    if (n == 1) return;
    const std::vector<char> low = params_with_low_copies(program);
    std::vector<std::vector<ValueId>> states(program.values.size());
    for (size_t id = 0; id < program.values.size(); ++id)
        if (const Value& value = program.values[id]; value.role == Role::state && value.of != none)
            states[static_cast<size_t>(value.of)].push_back(static_cast<ValueId>(id));
    std::vector<ValueId> grads(program.values.size(), none);
    for (const auto& [param, grad] : program.grads()) grads[static_cast<size_t>(param)] = grad;

    for (ValueId param : program.params()) {
        const auto p = static_cast<size_t>(param);
        const auto dim = first_dim_to_split(program, mesh, param, n);
        if (!dim) {
            program.note(param, "whole over " + zero.axis + "=" + std::to_string(n) + ": no dim divides", origin);
            continue;
        }
        const Placement part = Placement::split(*dim);
        if (zero.stage == 3 || low[p]) {
            program.store(param, zero.axis, part, origin);
            program.use(param, zero.axis, Placement::replicated(), origin,
                        zero.stage == 3 ? Keep::fragment : Keep::step);
        }
        for (ValueId state : states[p]) program.store(state, zero.axis, part, origin);
        if (grads[p] == none) continue;
        if (zero.stage == 1)
            scatter_once(program, grads[p], zero, part, origin);
        else
            program.store(grads[p], zero.axis, part, origin);
        // Terms come at both ends of the backward pass; scattered one by one they would cost a message each.
        if (zero.stage > 1 && !terms_of_gradient(program, param).empty())
            program.note(param,
                         "its gradient stays whole over " + zero.axis +
                             " until the step's last micro-batch: it has "
                             "several terms, and one message carries their sum",
                         origin);
    }
}

}  // namespace orrery
