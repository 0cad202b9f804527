#include "kernels/rules/spec.h"

#include <cstdio>

namespace orrery::kernels::rules {

namespace {

const Attribute* find(const Spec& spec, std::string_view name) {
    for (const auto& [key, value] : spec.attributes)
        if (key == name) return &value;
    return nullptr;
}

template <class T>
T read(const Spec& spec, std::string_view name, T fallback, const char* kind) {
    const Attribute* found = find(spec, name);
    if (!found) return fallback;
    if (const T* value = std::get_if<T>(found)) return *value;
    throw Refused(spec.op + ": attribute " + std::string(name) + " is no " + kind);
}

std::string name_of(const Operand& operand) {
    switch (operand.type) {
        case Type::f32: return "f32";
        case Type::f64: return operand.moved_only ? "i64" : "f64";
        case Type::bf16: return "bf16";
        case Type::f16: return operand.moved_only ? "u16" : "f16";
        case Type::i32: return "i32";
        case Type::u32: return "u32";
        case Type::u8: return "u8";
        case Type::i8: return "i8";
        case Type::f8e4m3: return "f8e4m3";
        case Type::f8e5m2: return "f8e5m2";
    }
    return "?";
}

std::string list(const std::vector<std::int64_t>& values) {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) text += (i ? "," : "") + std::to_string(values[i]);
    return text + "]";
}

std::string types(const std::vector<Operand>& operands) {
    std::string text = "(";
    for (size_t i = 0; i < operands.size(); ++i)
        text += (i ? ", " : "") + name_of(operands[i]) + list(operands[i].shape);
    return text + ")";
}

struct AttributeText {
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const {
        char text[32];
        std::snprintf(text, sizeof text, "%.9g", value);
        return text;
    }
    std::string operator()(const std::string& value) const { return value; }
    std::string operator()(const std::vector<std::int64_t>& value) const { return list(value); }
};

}  // namespace

std::int64_t Operand::count() const {
    std::int64_t n = 1;
    for (std::int64_t size : shape) n *= size;
    return n;
}

std::int64_t Operand::rows() const {
    std::int64_t n = 1;
    for (size_t d = 0; d + 1 < shape.size(); ++d) n *= shape[d];
    return n;
}

std::int64_t Operand::cols() const { return shape.empty() ? 1 : shape.back(); }

bool Spec::flag(std::string_view name, bool fallback) const { return read(*this, name, fallback, "flag"); }

std::int64_t Spec::integer(std::string_view name, std::int64_t fallback) const {
    return read(*this, name, fallback, "integer");
}

double Spec::number(std::string_view name, double fallback) const {
    if (const Attribute* found = find(*this, name))
        if (const auto* whole = std::get_if<std::int64_t>(found)) return static_cast<double>(*whole);
    return read(*this, name, fallback, "number");
}

std::string Spec::text(std::string_view name, std::string_view fallback) const {
    return read(*this, name, std::string(fallback), "text");
}

std::vector<std::int64_t> Spec::integers(std::string_view name) const {
    return read(*this, name, std::vector<std::int64_t>{}, "list of integers");
}

std::string Spec::text() const {
    std::string constants;
    for (const auto& [key, value] : attributes)
        constants += (constants.empty() ? "{" : ", ") + key + "=" + std::visit(AttributeText{}, value);
    if (!constants.empty()) constants += "}";
    return op + constants + types(inputs) + " -> " + types(outputs);
}

}  // namespace orrery::kernels::rules
