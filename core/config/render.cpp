#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/suggest.h"
#include "base/text.h"
#include "config/load.h"
#include "config/schema.h"
#include "config/toml_text.h"

namespace orrery {

std::string toml_string(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') out += '\\';
        if (byte < 32 || byte == 127)
            out += fmt::format("\\u{:04x}", byte);
        else
            out += c;
    }
    return out + "\"";
}

namespace {

std::string key_text(std::string_view key) {
    const auto plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    };
    for (const char c : key)
        if (!plain(c)) return "'" + std::string(key) + "'";
    return key.empty() ? "''" : std::string(key);
}

std::string number_text(double number) {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
    const std::string text = fmt::format("{}", number);  // the shortest text that parses to the same number
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string inline_table(const Config& table) {
    std::vector<std::string> parts;
    for (const auto& [key, value] : table.items()) parts.push_back(key_text(key) + " = " + toml_value(value));
    return "{ " + join(parts, ", ") + " }";
}

}  // namespace

std::string toml_value(const ConfigValue& value) {
    if (const bool* flag = std::get_if<bool>(&value.data)) return *flag ? "true" : "false";
    if (const int64_t* integer = std::get_if<int64_t>(&value.data)) return fmt::format("{}", *integer);
    if (const double* number = std::get_if<double>(&value.data)) return number_text(*number);
    if (const std::string* text = std::get_if<std::string>(&value.data)) return toml_string(*text);
    if (const auto* list = std::get_if<ConfigValue::List>(&value.data)) {
        std::vector<std::string> parts;
        for (const ConfigValue& item : *list) parts.push_back(toml_value(item));
        return "[" + join(parts, ", ") + "]";
    }
    return inline_table(*std::get<std::shared_ptr<Config>>(value.data));
}

namespace {

void render_table(const Config& table, std::string& out) {
    std::string lines;
    for (const auto& [key, value] : table.items()) {
        if (std::holds_alternative<std::shared_ptr<Config>>(value.data)) continue;
        std::string source = value.origin.text();
        for (char& c : source)
            if (static_cast<unsigned char>(c) < 32) c = ' ';  // of a --set text; control characters are not valid TOML
        const std::string line = key_text(key) + " = " + toml_value(value);
        lines += source.empty() ? line + "\n" : fmt::format("{:<36} # {}\n", line, source);
    }
    if (!lines.empty()) {
        if (!out.empty()) out += "\n";
        std::vector<std::string> parts;
        for (const std::string& part : split(table.path(), '.')) parts.push_back(key_text(part));
        out += "[" + join(parts, ".") + "]\n" + lines;
    }
    for (const auto& [key, value] : table.items())
        if (const auto* below = std::get_if<std::shared_ptr<Config>>(&value.data)) render_table(**below, out);
}

const Config* below(const Config& config, std::string_view key) {
    const ConfigValue* value = config.find(key);
    const auto* table = value ? std::get_if<std::shared_ptr<Config>>(&value->data) : nullptr;
    return table ? table->get() : nullptr;
}

void flatten(const Config& table, std::vector<std::pair<std::string, std::string>>& out) {
    for (const auto& [key, value] : table.items()) {
        if (const auto* below = std::get_if<std::shared_ptr<Config>>(&value.data)) {
            flatten(**below, out);
            continue;
        }
        const int64_t* integer = std::get_if<int64_t>(&value.data);
        const double* number = std::get_if<double>(&value.data);
        const std::string text = integer  ? fmt::format("{}", *integer)
                                 : number ? fmt::format("{}", *number)
                                          : toml_value(value);
        out.emplace_back(table.path() + "." + key, text);
    }
}

void check_name(std::string_view kind, std::string_view name, const Origin& where,
                const std::vector<std::string>& all) {
    const std::vector<std::string> known = names_of(kind, all);
    for (const std::string& one : known)
        if (one == name) return;
    throw Error(where, fmt::format("no {} {}{}", kind, quote(name), choices("found in plugins/", name, known)));
}

void check_launcher(const std::string& name, const Origin& where, const std::vector<std::string>& all) {
    if (name != any_launcher && name != own_launcher) check_name("launcher", name, where, all);
}

void check_axes(const Config& config, const Config& axes, const std::vector<std::string>& names) {
    const Config* mesh = below(config, "mesh");
    for (const auto& [axis, value] : axes.items()) {
        check_name("transport", std::get<std::string>(value.data), value.origin, names);
        if (mesh && mesh->has(axis)) continue;
        throw Error(value.origin, fmt::format("[transport.axis]: axis {} is missing in [mesh]{}", quote(axis),
                                              choices("axes", axis, mesh ? mesh->keys() : std::vector<std::string>())));
    }
}

}  // namespace

std::string render(const Config& config) {
    std::string out;
    render_table(config, out);
    return out;
}

std::string changes(const Config& before, const Config& now, std::initializer_list<std::string_view> tables,
                    size_t most) {
    std::vector<std::pair<std::string, std::string>> old, current;
    for (std::string_view table : tables) {
        if (const Config* found = below(before, table)) flatten(*found, old);
        if (const Config* found = below(now, table)) flatten(*found, current);
    }
    const auto value = [](const auto& values, const std::string& key) {
        for (const auto& [other, text] : values)
            if (other == key) return text;
        return std::string("left out");
    };
    std::vector<std::string> all;
    for (const auto& [key, text] : current)
        if (const std::string was = value(old, key); was != text) all.push_back(key + " " + was + " -> " + text);
    for (const auto& [key, text] : old)
        if (value(current, key) == "left out") all.push_back(key + " " + text + " -> left out");
    const size_t rest = all.size() - std::min(all.size(), most);
    all.resize(all.size() - rest);
    return join(all, ", ") + (rest > 0 ? fmt::format(" and {} more", rest) : "");
}

std::vector<std::string> names_of(std::string_view kind, const std::vector<std::string>& names) {
    std::vector<std::string> out;
    for (const std::string& name : names)
        if (name.size() > kind.size() && name.starts_with(kind) && name[kind.size()] == '/')
            out.push_back(name.substr(kind.size() + 1));
    return out;
}

void check_backends(const Config& config, const std::vector<std::string>& names) {
    const Config* run = below(config, "run");
    const ConfigValue* launcher = run ? run->find("launcher") : nullptr;
    if (launcher) check_launcher(std::get<std::string>(launcher->data), launcher->origin, names);
    for (std::string_view kind : {"device", "transport", "store", "rendezvous", "engine"}) {
        const ConfigValue* value = run ? run->find(kind) : nullptr;
        if (value) check_name(kind, std::get<std::string>(value->data), value->origin, names);
        const Config* tables = below(config, kind == "engine" ? "submit" : kind);
        if (!tables) continue;
        for (const auto& [name, entry] : tables->items()) {
            if (!std::holds_alternative<std::shared_ptr<Config>>(entry.data)) continue;
            const Config& table = *std::get<std::shared_ptr<Config>>(entry.data);
            if (kind == "transport" && name == "axis")
                check_axes(config, table, names);
            else if (kind != "engine" || name != "environment")
                check_name(kind, name, table.origin(), names);
        }
    }
}

}  // namespace orrery
