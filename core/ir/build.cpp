#include "ir/build.h"

#include <fmt/format.h>

#include "ir/describe.h"
#include "ir/op.h"

namespace orrery {

Builder::Builder(Program& program) : program_(program) {
    for (size_t i = 0; i < program.values.size(); ++i) {
        if (!program.values[i].name.empty()) names_.emplace(program.values[i].name, i);
    }
}

void Builder::claim(std::string_view name, ValueId value, const Origin& origin) {
    const auto [place, fresh] = names_.emplace(std::string(name), value);
    if (fresh || place->second == value) return;
    throw Error(origin, fmt::format("there are two values named \"{}\": the other is {}; rename one of them", name,
                                    describe(program_, place->second)));
}

ValueId Builder::source(Value value) {
    const ValueId id = program_.values.size();
    if (value.name.empty()) throw Error(value.origin, "an input, param or state needs a name");
    const Shape& shape = value.type.shape;
    for (int64_t size : shape) {
        if (size >= 1) continue;
        throw Error(value.origin,
                    fmt::format("{} {}: every dim must be at least 1", value.name, text_of(value.type, value.dims)));
    }
    if (value.dims.empty()) value.dims.resize(shape.size());
    if (value.dims.size() != shape.size()) {
        throw Error(value.origin, fmt::format("{} {} has {} dims but {} dim names", value.name, value.type.text(),
                                              shape.size(), value.dims.size()));
    }
    claim(value.name, id, value.origin);
    program_.values.push_back(std::move(value));
    return id;
}

ValueId Builder::input(std::string_view name, TensorType type, DimNames dims, const Origin& origin) {
    Value value;
    value.name = name;
    value.type = std::move(type);
    value.dims = std::move(dims);
    value.role = Role::input;
    value.origin = origin;
    return source(std::move(value));
}

ValueId Builder::param(std::string_view name, TensorType type, DimNames dims, Attributes init, const Origin& origin) {
    Value value;
    value.name = name;
    value.type = std::move(type);
    value.dims = std::move(dims);
    value.role = Role::param;
    value.init = std::move(init);
    value.origin = origin;
    return source(std::move(value));
}

ValueId Builder::state(ValueId param, std::string_view name, TensorType type, Attributes init, const Origin& origin) {
    const Value* owner = param == none ? nullptr : &program_.value(param);
    if (owner && owner->role != Role::param) {
        throw Error(origin, fmt::format("state {} must belong to a param, not to {}", name, describe(program_, param)));
    }
    Value value;
    value.name = name;
    value.dims.resize(type.shape.size());
    if (owner && type.shape == owner->type.shape) value.dims = owner->dims;
    value.type = std::move(type);
    value.role = Role::state;
    value.init = std::move(init);
    value.of = param;
    value.origin = owner && origin.text().empty() ? owner->origin : origin;
    return source(std::move(value));
}

namespace {

void apply_names(const OpDef& def, Typed& output, const Builder::DimNames& given, const Origin& origin) {
    if (given.empty()) return;
    if (given.size() != output.dims.size()) {
        throw Error(origin, fmt::format("{}: the result {} has {} dims but {} dim names", def.name,
                                        text_of(output.type, output.dims), output.dims.size(), given.size()));
    }
    for (size_t d = 0; d < given.size(); ++d) {
        std::string& known = output.dims[d];
        if (given[d].empty()) continue;
        if (!known.empty() && known != given[d] && !def.alias) {
            throw Error(origin, fmt::format("{}: dim {} of the result {} is named \"{}\" by its operands, not \"{}\"; "
                                            "rename with reshape",
                                            def.name, d, text_of(output.type, output.dims), known, given[d]));
        }
        known = given[d];
    }
}

}  // namespace

std::vector<ValueId> Builder::add(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes,
                                  const Origin& origin, const std::vector<DimNames>& names) {
    const OpDef& def = op_def(kind, origin);
    std::vector<Typed> outputs = infer(def, program_, inputs, attributes, origin);
    if (names.size() > outputs.size()) {
        throw Error(origin, fmt::format("{} has {} results, got dim names for {}", kind, outputs.size(), names.size()));
    }
    Op op;
    op.kind = def.name;
    op.attributes = std::move(attributes);
    op.inputs = std::move(inputs);
    op.phase = phase_;
    op.scope = scope_;
    op.forward = forward_;
    op.origin = origin;
    const OpId op_id = program_.ops.size();
    for (size_t i = 0; i < outputs.size(); ++i) {
        if (i < names.size()) apply_names(def, outputs[i], names[i], origin);
        Value value;
        value.type = std::move(outputs[i].type);
        value.dims = std::move(outputs[i].dims);
        value.op = op_id;
        value.output = i;
        value.origin = origin;
        op.outputs.push_back(program_.values.size());
        program_.values.push_back(std::move(value));
    }
    std::vector<ValueId> result = op.outputs;
    program_.ops.push_back(std::move(op));
    return result;
}

ValueId Builder::one(std::string_view kind, std::vector<ValueId> inputs, Attributes attributes, const Origin& origin,
                     const std::vector<DimNames>& names) {
    return add(kind, std::move(inputs), std::move(attributes), origin, names).at(0);
}

void Builder::name(ValueId id, std::string_view name, const Origin& origin) {
    claim(name, id, origin);
    program_.value(id).name = name;
}

void Builder::update(ValueId target, ValueId value, const Origin& origin) {
    const Value& to = program_.value(target);
    if (to.role != Role::param && to.role != Role::state) {
        throw Error(origin, fmt::format("cannot update {}: it is neither param nor state", describe(program_, target)));
    }
    if (to.type != program_.value(value).type) {
        throw Error(origin, fmt::format("cannot update {} with {}: the types differ", describe(program_, target),
                                        describe(program_, value)));
    }
    program_.updates.push_back({target, value});
}

void Builder::result(std::string_view name, ValueId value, const Origin& origin) {
    if (program_.result(name))
        throw Error(origin, fmt::format("duplicate result name \"{}\"; rename one of the results", name));
    program_.results.push_back({std::string(name), value});
}

void Builder::push_scope(std::string_view scope) {
    scopes_.push_back(scope_.size());
    if (!scope_.empty()) scope_ += '.';
    scope_ += scope;
}

void Builder::pop_scope() {
    scope_.resize(scopes_.back());
    scopes_.pop_back();
}

void relink(Program& program, const std::vector<OpId>& moved) {
    for (size_t id = 0; id < program.ops.size(); ++id) {
        Op& op = program.ops[id];
        if (op.forward != none) op.forward = moved[op.forward];
        for (size_t k = 0; k < op.outputs.size(); ++k) {
            program.value(op.outputs[k]).op = id;
            program.value(op.outputs[k]).output = k;
        }
    }
}

}  // namespace orrery
