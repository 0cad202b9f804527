#include "ir/describe.h"

#include <fmt/format.h>

namespace orrery {

std::string text_of(const TensorType& type, const std::vector<std::string>& dims) {
    std::string text{name_of(type.dtype)};
    text += '[';
    for (size_t i = 0; i < type.shape.size(); ++i) {
        if (i > 0) text += ',';
        if (i < dims.size() && !dims[i].empty()) text += dims[i] + '=';
        text += fmt::format("{}", type.shape[i]);
    }
    return text + ']';
}

std::string label_of(const Program& program, ValueId id) {
    const Value& value = program.value(id);
    if (!value.name.empty()) return value.name;
    return value.op == none ? fmt::format("%{}", id) : fmt::format("%{} ({})", id, program.op(value.op).kind);
}

std::string describe(const Program& program, ValueId id) {
    const Value& value = program.value(id);
    std::string text = label_of(program, id) + ' ' + text_of(value.type, value.dims);
    if (const std::string place = value.origin.text(); !place.empty()) text += " (" + place + ')';
    return text;
}

std::string describe(const Program& program, const Op& op) {
    std::string text = op.kind;
    if (!op.outputs.empty()) text += ' ' + label_of(program, op.outputs[0]);
    if (const std::string place = op.origin.text(); !place.empty()) text += ", " + place;
    if (!op.scope.empty()) text += ", in " + op.scope;
    return text;
}

}  // namespace orrery
