#include "ir/describe.h"

#include <fmt/format.h>

#include "ir/op.h"

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

namespace {

bool is_bare(std::string_view word) {
    constexpr std::string_view others = "_.-/";
    for (char c : word) {
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && others.find(c) == std::string_view::npos) return false;
    }
    return !word.empty();
}

bool is_ambiguous(std::string_view word) {
    const char c = word.front();
    return (c >= '0' && c <= '9') || c == '-' || c == '.' || word == "true" || word == "false" || word == "inf" ||
           word == "nan";
}

std::string text_of(double value) {
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";  // "n" also matches inf and nan
    return text;
}

}  // namespace

std::string quoted(std::string_view word) {
    if (is_bare(word)) return std::string(word);
    std::string text = "\"";
    for (char c : word) {
        if (c == '"' || c == '\\') text += '\\';
        if (c == '\n') {
            text += "\\n";
        } else {
            text += c;
        }
    }
    return text + '"';
}

std::string text_of(const Attribute& value) {
    struct Text {
        std::string operator()(bool flag) const { return flag ? "true" : "false"; }
        std::string operator()(int64_t whole) const { return fmt::format("{}", whole); }
        std::string operator()(double number) const { return text_of(number); }
        std::string operator()(const std::string& word) const {
            return is_bare(word) && is_ambiguous(word) ? '"' + word + '"' : quoted(word);
        }
        std::string operator()(const std::vector<int64_t>& list) const { return orrery::text_of(list); }
    };
    return std::visit(Text{}, value);
}

std::string text_of(const Attributes& attributes, std::string_view skip) {
    std::string text;
    for (const auto& [key, value] : attributes.items()) {
        if (key == skip) continue;
        text += fmt::format("{}{}={}", text.empty() ? "{" : ", ", quoted(key), text_of(value));
    }
    return text.empty() ? text : text + '}';
}

std::string label_of(const Program& program, ValueId id) {
    const Value& value = program.value(id);
    if (!value.name.empty()) return value.name;
    return value.op == none ? fmt::format("%{}", id) : fmt::format("%{} ({})", id, program.op(value.op).kind);
}

const CodedMessage* coded_message(const Program& program, ValueId value) {
    const auto found = std::find_if(program.coded.begin(), program.coded.end(),
                                    [&](const CodedMessage& coded) { return coded.result == value; });
    return found == program.coded.end() ? nullptr : &*found;
}

ValueId original_of(const Program& program, ValueId value) {
    while (value != none) {
        const OpId maker = program.value(value).op;
        if (maker == none) break;
        const Op& op = program.op(maker);
        if (const CodedMessage* coded = op.attributes.has("codec") ? coded_message(program, value) : nullptr)
            value = coded->plain;
        else if (op_def(op.kind).collective && op.inputs.size() == 1)
            value = op.inputs[0];
        else
            break;
    }
    return value;
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
