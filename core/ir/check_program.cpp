#include "ir/check_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ir/describe.h"
#include "ir/op.h"

namespace orrery {

namespace {

bool exists(const Program& program, ValueId id) { return id >= 0 && id < std::ssize(program.values); }

// Checks of a value or an op. Each returns the problem, or "". Later checks rely on earlier ones.

std::string value_form(const Program& program, ValueId id) {
    const Value& v = program.value(id);
    if (v.dims.size() != v.type.shape.size()) return "has another number of dim names than dims";
    if (std::any_of(v.type.shape.begin(), v.type.shape.end(), [](int64_t n) { return n < 1; }))
        return "has an empty dim";
    const bool source = v.role != Role::temporary;
    if (source && v.op != none) return "is an input, param or state, yet an op makes it";
    if (source && v.name.empty()) return "is an input, param or state without a name";
    if (!source && v.op != none && (v.op < 0 || v.op >= std::ssize(program.ops))) return "is made by no op";
    return "";
}

/// True for a temporary that no op makes. The pass `fuse` leaves such values; no op may read one.
bool dropped(const Program& program, ValueId id) {
    const Value& v = program.value(id);
    return v.role == Role::temporary && v.op == none;
}

std::string value_maker(const Program& program, ValueId id) {
    const Value& v = program.value(id);
    if (v.op == none) return "";
    const auto& outputs = program.op(v.op).outputs;
    const bool listed = v.output >= 0 && v.output < std::ssize(outputs) && outputs[v.output] == id;
    return listed ? "" : fmt::format("is not listed as output {} of the op that computes it", v.output);
}

std::string state_owner(const Program& program, ValueId id) {
    const Value& v = program.value(id);
    if (v.role == Role::temporary && v.of != none) {  // compile/islands.h, moved_by
        const bool array = exists(program, v.of) &&
                           (program.value(v.of).role == Role::param || program.value(v.of).role == Role::state);
        return array ? "" : "is marked as moved, but names no param or state";
    }
    if (v.role != Role::state) return v.of == none ? "" : "belongs to a param but is not a state";
    if (v.of == none) return "";  // a state of all params, such as a loss scale, or of the model
    return exists(program, v.of) && program.value(v.of).role == Role::param ? "" : "is a state of no param";
}

std::string op_operands(const Program& program, OpId id) {
    const Op& op = program.op(id);
    for (ValueId input : op.inputs) {
        if (!exists(program, input)) return fmt::format("reads %{}, which does not exist", input);
        if (dropped(program, input)) return fmt::format("reads {}, which no op computes", describe(program, input));
        if (program.value(input).op >= id) {
            return fmt::format("reads {}, which is made later", describe(program, input));
        }
    }
    if (op.outputs.empty()) return "makes nothing";
    for (ValueId output : op.outputs) {
        if (!exists(program, output) || program.value(output).op != id) {
            return fmt::format("lists output %{}, which it does not compute", output);
        }
    }
    return "";
}

std::string op_order(const Program& program, OpId id) {
    const Op& op = program.op(id);
    if (id > 0 && op.phase < program.op(id - 1).phase) return "comes after an op of a later phase";
    if (op.forward == none) return "";
    if (op.phase == Phase::forward) return "is a forward op that belongs to a forward op";
    if (op.forward < 0 || op.forward >= id) return "belongs to an op that does not come before it";
    return program.op(op.forward).phase == Phase::forward ? "" : "belongs to an op that is not a forward op";
}

std::string op_types(const Program& program, OpId id) {
    const Op& op = program.op(id);
    const OpDef* def = find_op_def(op.kind);
    if (!def) return "is not a known op";
    Attributes attributes = op.attributes;
    const std::vector<Typed> outputs = infer(*def, program, op.inputs, attributes, op.origin);
    if (attributes != op.attributes) {
        return fmt::format("has attributes {}, in full {}", text_of(op.attributes), text_of(attributes));
    }
    if (outputs.size() != op.outputs.size()) {
        return fmt::format("has {} results instead of {}", op.outputs.size(), outputs.size());
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
        const Value& value = program.value(op.outputs[i]);
        if (value.type != outputs[i].type) {
            return fmt::format("makes {}, which should be {}", describe(program, op.outputs[i]),
                               text_of(outputs[i].type, outputs[i].dims));
        }
    }
    return "";
}

std::string program_names(const Program& program) {
    std::unordered_set<std::string_view> seen;
    for (const Value& v : program.values) {
        if (!v.name.empty() && !seen.insert(v.name).second) return fmt::format("two values are named {}", v.name);
    }
    seen.clear();
    for (const Result& r : program.results) {
        if (!exists(program, r.value)) return fmt::format("result {} is %{}, which does not exist", r.name, r.value);
        if (dropped(program, r.value)) return fmt::format("result {} is made by no op", r.name);
        if (!seen.insert(r.name).second) return fmt::format("two results are named {}", r.name);
    }
    return "";
}

std::string program_updates(const Program& program) {
    std::unordered_set<ValueId> seen;
    for (const Update& u : program.updates) {
        if (!exists(program, u.target) || !exists(program, u.value))
            return "an update names a value that does not exist";
        if (dropped(program, u.value)) return "an update names a value that is made by no op";
        const Value& target = program.value(u.target);
        if (target.role != Role::param && target.role != Role::state) {
            return fmt::format("{} is updated but is neither param nor state", describe(program, u.target));
        }
        if (target.type != program.value(u.value).type) {
            return fmt::format("{} is updated with {}, which has another type", describe(program, u.target),
                               describe(program, u.value));
        }
        if (!seen.insert(u.target).second) return fmt::format("{} is updated twice", describe(program, u.target));
    }
    return "";
}

std::string program_grads(const Program& program) {
    for (const auto& [param, grad] : program.grads()) {
        if (!exists(program, param) || !exists(program, grad)) return "a gradient names a value that does not exist";
        if (dropped(program, grad)) return "a gradient is made by no op";
        if (program.value(param).role != Role::param) {
            return fmt::format("{} has a gradient but is not a param", describe(program, param));
        }
        if (program.value(grad).type != TensorType{DType::f32, program.value(param).type.shape}) {
            return fmt::format("the gradient {} does not fit {}: expected f32 and the shape of the param",
                               describe(program, grad), describe(program, param));
        }
    }
    return "";
}

std::string program_marks(const Program& program) {
    for (const Mark& mark : program.marks()) {
        if (!exists(program, mark.value)) return fmt::format("a mark names %{}, which does not exist", mark.value);
    }
    return "";
}

constexpr std::string (*value_checks[])(const Program&, ValueId) = {value_form, value_maker, state_owner};
constexpr std::string (*op_checks[])(const Program&, OpId) = {op_operands, op_order, op_types};
constexpr std::string (*program_checks[])(const Program&) = {program_names, program_updates, program_grads,
                                                             program_marks};

}  // namespace

void check_program(const Program& program) {
    for (auto check : value_checks) {
        for (ValueId id = 0; id < std::ssize(program.values); ++id) {
            const std::string wrong = check(program, id);
            if (wrong.empty()) continue;
            throw Error(program.value(id).origin,
                        fmt::format("program {}: %{} {} {}", program.name, id, program.value(id).name, wrong));
        }
    }
    for (auto check : op_checks) {
        for (OpId id = 0; id < std::ssize(program.ops); ++id) {
            const std::string wrong = check(program, id);
            if (wrong.empty()) continue;
            const Op& op = program.op(id);
            throw Error(fmt::format("program {}: op {} ({}) {}", program.name, id, describe(program, op), wrong));
        }
    }
    for (auto check : program_checks) {
        const std::string wrong = check(program);
        if (!wrong.empty()) throw Error(fmt::format("program {}: {}", program.name, wrong));
    }
}

}  // namespace orrery
