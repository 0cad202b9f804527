// The ops in scripts/orrery/meta.lua are made here: what they take from OpDefs, what they do from core/ir/README.md.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "folders.h"
#include "ir/op.h"
#include "ops/call.h"

using namespace orrery;

namespace {

constexpr const char* first_line = "-- ops: begin. ORRERY_BLESS=1 build/unit_tests \"[meta]\" writes what follows.\n";
constexpr const char* last_line = "-- ops: end\n";

std::string content_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

/// A row of the table of ops: `name` ... | operands -> results | notes |
struct Row {
    std::string signature, notes;
};

std::map<std::string, Row> rows_of_manual() {
    std::map<std::string, Row> rows;
    std::istringstream text(content_of(in_source("core/ir/README.md")));
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
    for (op_tests::Call call : op_tests::calls_of(def)) {
        if (operand >= call.sample.operands.size() || !is_float(call.sample.operands[operand].dtype)) continue;
        call.sample.operands[operand].shape = {};
        if (operand < call.sample.dims.size()) call.sample.dims[operand] = {};
        try {
            call.program();
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

/// The declaration of one op as a method.
std::string method(const OpDef& def, const Row& row) {
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
            type = std::string(1, static_cast<char>(std::toupper(def.name[0]))) + std::string(def.name.substr(1)) +
                   "Options";
            text = fmt::format("---@class {}\n{}\n", type, fields) + text;
        }
        param("options", !needed, type);
    }
    return text +
           fmt::format("---@return {}\nfunction Value:{}({}) end\n", results_of(row.signature), def.name, params);
}

/// All ops that are methods of values, but those that the hand-written part has.
std::string methods(const std::string& by_hand) {
    const std::map<std::string, Row> rows = rows_of_manual();
    std::string text;
    for (const OpDef* def : own_ops()) {
        if (def->collective || def->operands.empty()) continue;
        if (by_hand.find(fmt::format("function Value:{}(", def->name)) != std::string::npos) continue;
        INFO(def->name);
        const auto row = rows.find(std::string(def->name));
        REQUIRE(row != rows.end());
        text += method(*def, row->second);
    }
    return text;
}

}  // namespace

TEST_CASE("the ops in meta.lua are those of the table", "[meta]") {
    const std::string path = in_source("scripts/orrery/meta.lua");
    const std::string have = content_of(path);
    const size_t begin = have.find(first_line), end = have.find(last_line);
    INFO(path << " has the lines\n" << first_line << last_line);
    REQUIRE((begin != std::string::npos && end != std::string::npos && begin < end));
    const std::string before = have.substr(0, begin) + first_line, after = have.substr(end);
    const std::string want = before + methods(before + after) + after;
    if (std::getenv("ORRERY_BLESS")) {
        std::ofstream(path) << want;
        return;
    }
    std::istringstream lines(want), found(have);
    std::string a, b;
    for (int line = 1; std::getline(lines, a); ++line) {
        if (!std::getline(found, b)) b = "(end of the file)";
        INFO(path << ":" << line
                  << " is not what the ops' definitions say: ORRERY_BLESS=1 build/unit_tests \"[meta]\"");
        REQUIRE(b == a);
    }
    CHECK(have == want);
}
