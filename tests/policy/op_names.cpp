// What an op is stands in its OpDef (orrery/op.h): core asks for traits, and compares names of ops in few places.
#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>
#include <regex>
#include <set>

#include "code.h"
#include "source.h"

using policy::Code;
using policy::Literal;
using policy::Source;

namespace {

/// How many comparisons are left. It only shrinks: who takes one away lowers it.
constexpr size_t comparisons_left = 2;

/// Tables of times and flags of commands have these words, too: they count where the kind of an op is compared.
const std::set<std::string> collectives{"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                        "shard",      "transfer",   "stage_sum"};

/// What is compared here with a word that is an op's name, too: a reduction on the command line, a kind of fault.
const std::regex other_words(R"((command\.op|parts\[0\])\s*[=!]=\s*$)");

/// The ops of the table in core/ir/README.md, which the test of ir_build compares with OpDefs.
std::set<std::string> op_names() {
    std::set<std::string> names;
    for (const Source& source : policy::sources())
        if (source.path == "core/ir/README.md") names.merge(policy::first_column(source, "| op |"));
    return names;
}

/// op.kind == "x", "x" != kind, kind.starts_with("x"), kinds.count("x"), is(op, "x").
bool asks(const Code& code, const Literal& literal) {
    static const std::regex function(
        R"(\b(starts_with|ends_with|contains|count|find|compare|is|is_kind|of_kind|is_op)\s*\(([^()]*,\s*)?$)");
    const std::string before = code.before(literal);
    if (std::regex_search(before, other_words)) return false;
    static const std::regex kind(R"(kind\)?\s*[=!]=[^;]*$)");
    if (collectives.count(literal.text) != 0 && !std::regex_search(before, kind)) return false;
    return code.compared(literal) || std::regex_search(before, function);
}

/// The top-level elements of the list that opens at `open`, "" when it does not close.
std::vector<std::string> elements(const std::string& text, size_t open) {
    std::vector<std::string> found{""};
    int depth = 0;
    for (size_t i = open + 1; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '}' && depth == 0) return found;
        depth += (c == '{' || c == '(') - (c == '}' || c == ')');
        if (c == ';' && depth == 0) return {};
        if (c == ',' && depth == 0)
            found.emplace_back();
        else if (c != ' ' && c != '\n')
            found.back() += c;
    }
    return {};
}

/// Lists, sets and maps by names of ops: {"x", "y"}, {{"x", 1}, {"y", 2}}. Where each name of one stands.
std::set<size_t> listed(const Code& code, const std::set<std::string>& names) {
    std::set<size_t> places;
    for (size_t open = code.text.find('{'); open != std::string::npos; open = code.text.find('{', open + 1)) {
        const std::vector<std::string> all = elements(code.text, open);
        const auto begins = [&](const std::string& element, const std::string& with, const std::string& until) {
            if (!element.starts_with(with)) return false;
            const size_t end = element.find('"', with.size());
            return end != std::string::npos && names.count(element.substr(with.size(), end - with.size())) != 0 &&
                   element.compare(end + 1, until.size(), until) == 0 && (!until.empty() || end + 1 == element.size());
        };
        const bool list = !all.empty() && std::all_of(all.begin(), all.end(),
                                                      [&](const std::string& e) { return begins(e, "\"", ""); });
        const bool map = all.size() > 1 && std::all_of(all.begin(), all.end(),
                                                       [&](const std::string& e) { return begins(e, "{\"", ","); });
        if (!list && !map) continue;
        size_t count = all.size();
        for (const Literal& literal : code.literals) {
            if (literal.begin < open || names.count(literal.text) == 0 || count == 0) continue;
            places.insert(literal.begin);
            --count;
        }
    }
    return places;
}

/// The lines that compare with an op's name, one entry a name.
std::vector<size_t> comparisons(const std::vector<std::string>& lines, const std::set<std::string>& names) {
    const Code code(lines);
    const std::set<size_t> in_lists = listed(code, names);
    std::vector<size_t> found;
    for (const Literal& literal : code.literals) {
        const auto first = names.lower_bound(literal.text);
        const bool prefix = literal.text.ends_with('_') && first != names.end() && first->starts_with(literal.text);
        if (names.count(literal.text) == 0 && !prefix) continue;
        if (asks(code, literal) || in_lists.count(literal.begin) != 0) found.push_back(code.line_of(literal.begin));
    }
    return found;
}

/// "core/a/b.cpp:12: if (op.kind == "x")" of all, a line for each name.
std::vector<std::string> comparisons_of_core() {
    const std::set<std::string> names = op_names();
    std::vector<std::string> all;
    for (const Source& source : policy::sources()) {
        const bool ops = source.in("core/ir/ops");
        const bool table_of_fusion = source.path == "core/compile/passes/fuse.cpp";
        if (!source.in("core") || ops || table_of_fusion || !(source.is(".h") || source.is(".cpp"))) continue;
        for (size_t line : comparisons(source.lines, names)) {
            const std::string& text = source.lines[line - 1];
            all.push_back(source.path + ":" + std::to_string(line) + ": " +
                          text.substr(std::min(text.find_first_not_of(' '), text.size())));
        }
    }
    return all;
}

/// A line of a source once, with the number of names on it.
std::string text_of(const std::vector<std::string>& all) {
    std::string text;
    for (size_t i = 0, next = 0; i < all.size(); i = next) {
        while (next < all.size() && all[next] == all[i]) ++next;
        text += std::to_string(next - i) + "  " + all[i] + "\n";
    }
    return text;
}

}  // namespace

TEST_CASE("comparisons with the names of ops only become fewer") {
    const std::vector<std::string> all = comparisons_of_core();
    if (all.size() > comparisons_left)
        FAIL(text_of(all) << all.size() << " comparisons with names of ops in core outside ir/ops, at most "
                          << comparisons_left << ": ask for a trait of OpDef (orrery/op.h)");
    if (all.size() < comparisons_left)
        FAIL("only " << all.size() << " comparisons with names of ops are left: lower comparisons_left to that");
}

// build/tests/policy_tests "[op_names]"
TEST_CASE("comparisons with the names of ops, printed", "[.][op_names]") {
    const std::vector<std::string> all = comparisons_of_core();
    std::cout << text_of(all) << all.size() << " comparisons with names of ops in core outside ir/ops\n";
}

TEST_CASE("the rule about names of ops sees each way to compare") {
    const std::set<std::string> names = op_names();
    CHECK(names.size() > 50);
    const auto count = [&](const std::vector<std::string>& lines) { return comparisons(lines, names).size(); };
    CHECK(count({"if (op.kind == \"cast\") return;"}) == 1);
    CHECK(count({"const bool a = kind != \"add\" || \"mul\" == kind;"}) == 2);
    CHECK(count({"if (kernel != (kind == \"shard\" ? \"slice\" : kind)) return;"}) == 2);
    CHECK(count({"if (op.kind == \"all_gather\") return;"}) == 1);
    CHECK(count({"return op.kind ==", "       \"reshape\";"}) == 1);
    CHECK(count({"return kind == std::string_view(\"reshape\");"}) == 1);
    CHECK(count({"return kind.starts_with(\"matmul\") || kind.starts_with(\"cross_entropy_\");"}) == 2);
    CHECK(count({"if (of_kind(m.inputs[0], \"transpose\")) return;"}) == 1);
    CHECK(count({"const std::set<std::string> products{\"matmul\",", "    \"attention\"};"}) == 2);
    CHECK(count({"for (const char* kind : {\"sum\", \"max\"}) f(kind);"}) == 2);
    CHECK(count({"const std::map<std::string, int> cost{{\"exp\", 10}, {\"add\", 1}};"}) == 2);
    for (const char* line :
         {"// op.kind == \"cast\"", "if (row.op == \"all_gather\") return;", "backward.one(\"cast\", {x}, {});",
          "fused.kind = \"matmul\";", "KernelSpec spec{\"slice\", {{\"dim\", dim}}, {}, {}};",
          "build.one(\"scale\", {x}, {{\"by\", 1.0}});", "if (name == \"tokens\") return;",
          "f(\"op.kind == \\\"cast\\\"\");", "if (command.op == \"max\") return;"})
        if (count({line}) != 0) FAIL_CHECK(line);
}
