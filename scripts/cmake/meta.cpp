// Writes scripts/orrery/meta.lua, what editors know of the script library: the declarations of scripts/cmake/meta.lua,
// and between two lines of it a method for each op, made from its OpDef and its row in core/ir/README.md.
//
//   orrery_meta SOURCE
//
// SOURCE: the folder of the repository.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "base/env.h"
#include "ir/build.h"
#include "ir/op.h"

using namespace orrery;

namespace {

/// A row of the table of ops: `name` ... | operands -> results | notes |
struct Row {
    std::string signature, notes;
};

std::map<std::string, Row> rows_of(const std::string& manual) {
    std::map<std::string, Row> rows;
    std::istringstream text(manual);
    bool inside = false;
    for (std::string line; std::getline(text, line);) {
        if (line.starts_with("| op |")) inside = true;
        if (!inside || !line.starts_with("| `")) continue;
        std::vector<std::string> cells{""};
        for (size_t i = 2; i < line.size(); ++i) {
            if (line.compare(i, 2, "\\|") == 0)
                cells.back() += line[++i];
            else if (line.compare(i, 3, " | ") == 0)
                cells.emplace_back(), i += 2;
            else
                cells.back() += line[i];
        }
        if (cells.size() < 3) continue;
        // What a kernel does with memory is no business of scripts.
        static const std::regex memory(R"((^|, |; )[^,;]*in place[^,;|]*)");
        const std::string notes = std::regex_replace(cells[2].substr(0, cells[2].find_last_of('|')), memory, "");
        const size_t begin = notes.find_first_not_of("; "), end = notes.find_last_not_of(' ');
        const Row row{cells[1], begin == std::string::npos ? "" : notes.substr(begin, end + 1 - begin)};
        static const std::regex name("`([a-z_]+)`");
        for (auto at = std::sregex_iterator(cells[0].begin(), cells[0].end(), name); at != std::sregex_iterator(); ++at)
            rows[(*at)[1]] = row;
    }
    return rows;
}

std::string plain_name(std::string_view operand) { return std::string(operand.substr(0, operand.find_first_of("?."))); }

/// Whether a number may stand for an operand: inference takes one element where a sample has more.
bool takes_number(const OpDef& def, size_t operand) {
    for (OpSample& sample : def.samples ? def.samples() : std::vector<OpSample>()) {
        if (operand >= sample.operands.size() || !is_float(sample.operands[operand].dtype)) continue;
        sample.operands[operand].shape = {};
        if (operand < sample.dims.size()) sample.dims[operand] = {};
        Program program;
        Builder build(program);
        std::vector<ValueId> operands;
        for (size_t i = 0; i < sample.operands.size(); ++i) {
            const TensorType& type = sample.operands[i];
            const auto dims = i < sample.dims.size() ? sample.dims[i] : std::vector<std::string>(type.shape.size());
            operands.push_back(build.input(fmt::format("x{}", i), type, dims, {}));
        }
        try {
            build.add(def.name, operands, sample.attributes, {});
            return true;
        } catch (const Error&) {
        }
    }
    return false;
}

std::string type_of(const AttributeDef& attribute) {
    const bool dims = attribute.name == "dims" || attribute.name == "perm";
    std::string choices;
    for (const std::string_view choice : attribute.choices)
        choices += fmt::format("{}\"{}\"", choices.empty() ? "" : " | ", choice);
    switch (attribute.kind) {
        case AttributeDef::Kind::flag: return "boolean";
        case AttributeDef::Kind::integer: return attribute.name == "dim" ? "Dim" : "integer";
        case AttributeDef::Kind::number: return "number";
        case AttributeDef::Kind::text:
            return attribute.name == "dtype" ? "DType" : choices.empty() ? "string" : choices;
        case AttributeDef::Kind::integers: break;
    }
    return dims ? "Dim[]" : "integer[]";
}

/// "Value y, Value? pre" of "... -> (y, pre?)"; "Value" of one result.
std::string results_of(const std::string& signature) {
    const size_t arrow = signature.find("-> (");
    if (arrow == std::string::npos) return "Value";
    std::string list;
    int depth = 0;
    std::string one;
    const auto end_one = [&] {
        const size_t begin = one.find_first_not_of(' ');
        size_t end = begin;
        while (end < one.size() && (std::isalnum(static_cast<unsigned char>(one[end])) || one[end] == '_')) ++end;
        list += fmt::format("{}Value{} {}", list.empty() ? "" : ", ", one.ends_with('?') ? "?" : "",
                            one.substr(begin, end - begin));
        one.clear();
    };
    for (size_t i = arrow + 4; i < signature.size() && !(signature[i] == ')' && depth == 0); ++i) {
        depth += (signature[i] == '[') - (signature[i] == ']');
        if (signature[i] == ',' && depth == 0)
            end_one();
        else
            one += signature[i];
    }
    end_one();
    return list;
}

/// A comment of lines of at most 120 columns.
std::string comment(const std::string& text) {
    std::string all, line = "---";
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        if (line.size() + 1 + word.size() > 120) {
            all += line + "\n";
            line = "---";
        }
        line += " " + word;
    }
    return all + line + "\n";
}

/// The declaration of one op as a method. `declared`: those that are there.
std::string method(const OpDef& def, const Row& row, const std::string& declared) {
    std::string text, params, options, fields;
    if (row.signature.find('[') != std::string::npos || row.signature.find('{') != std::string::npos ||
        row.signature.find("->") != row.signature.rfind("->") || !row.notes.empty() || def.operands.size() > 2)
        text += comment(row.signature + (row.notes.empty() ? "" : ": " + row.notes));
    const auto param = [&](std::string name, bool maybe, const std::string& type) {
        if (name == "do") name += "_";  // a word of Lua
        text += fmt::format("---@param {}{} {}\n", name, maybe ? "?" : "", type);
        params += (params.empty() ? "" : ", ") + name;
    };
    const auto option = [&](const std::string& name, bool maybe, const std::string& type) {
        options += fmt::format("{}{}{}: {}", options.empty() ? "" : ", ", name, maybe ? "?" : "", type);
        fields += fmt::format("---@field {}{} {}\n", name, maybe ? "?" : "", type);
    };
    for (size_t i = 1; i < def.operands.size(); ++i) {
        const bool maybe = def.operands[i].ends_with('?');
        param(plain_name(def.operands[i]), maybe, takes_number(def, i) ? "Number" : "Value");
        if (maybe) option(plain_name(def.operands[i]), true, "Value");
    }
    const auto& attributes = def.attributes;
    const bool variadic = !def.operands.empty() && def.operands.back().ends_with("...");
    const bool one = attributes.size() == 1 && attributes[0].required && !variadic;  // x:scale(0.5)
    const bool needed = std::any_of(attributes.begin(), attributes.end(), [](auto& a) { return a.required; });
    if (attributes.empty()) options.clear();
    for (const AttributeDef& attribute : attributes)
        if (!one) option(std::string(attribute.name), !attribute.required, type_of(attribute));
    if (variadic) {
        text += fmt::format("---@param ... Value{}\n", options.empty() ? "" : " | { " + options + " }");
        params = "...";
    } else if (one) {
        param(std::string(attributes[0].name), false, type_of(attributes[0]));
    } else if (!options.empty()) {
        std::string type = "{ " + options + " }";
        if (type.size() > 100) {  // too long for a line: a class of its own
            const std::string name =
                std::string(1, static_cast<char>(std::toupper(def.name[0]))) + std::string(def.name.substr(1));
            const bool taken = declared.find(fmt::format("---@class {}Options\n", name)) != std::string::npos;
            type = name + (taken ? "OpOptions" : "Options");
            text = fmt::format("---@class {}\n{}\n", type, fields) + text;
        }
        param("options", !needed, type);
    }
    return text +
           fmt::format("---@return {}\nfunction Value:{}({}) end\n", results_of(row.signature), def.name, params);
}

/// All ops that are methods of values, but those that the declarations have.
std::string methods(const std::string& declared, const std::map<std::string, Row>& rows) {
    std::string text;
    for (const OpDef* def : own_ops()) {
        if (def->collective || def->operands.empty()) continue;
        if (declared.find(fmt::format("function Value:{}(", def->name)) != std::string::npos) continue;
        const auto row = rows.find(std::string(def->name));
        if (row == rows.end()) throw Error(fmt::format("core/ir/README.md has no row for the op {}", def->name));
        text += method(*def, row->second, declared);
    }
    return text;
}

}  // namespace

int main(int, char** arguments) try {
    const std::string source = arguments[1], to = source + "/scripts/orrery/meta.lua";
    std::string text = system_env()->read_file(source + "/scripts/cmake/meta.lua");
    text.insert(text.find("-- ops: end\n"),
                methods(text, rows_of(system_env()->read_file(source + "/core/ir/README.md"))));
    if (!system_env()->exists(to) || system_env()->read_file(to) != text) system_env()->replace_file(to, text);
    return 0;
} catch (const std::exception& problem) {
    std::fprintf(stderr, "orrery_meta: %s\n", problem.what());
    return 1;
}
