// Core asks the contract of a plugin: it compares nothing with a plugin's name.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "code.h"
#include "source.h"

using policy::Code;
using policy::Literal;
using policy::Source;

namespace {

/// NAME and KIND/NAME of each folder plugins/KIND/NAME.
std::set<std::string> plugin_names() {
    std::set<std::string> names;
    for (const Source& source : policy::sources()) {
        if (!source.in("plugins")) continue;
        const size_t kind = source.path.find('/') + 1, name = source.path.find('/', kind) + 1;
        const size_t end = source.path.find('/', name);
        if (name <= kind || end == std::string::npos) continue;
        names.insert(source.path.substr(name, end - name));
        names.insert(source.path.substr(kind, end - kind));
    }
    return names;
}

/// A comparison with a word that is a plugin's name, too, or one that is left, and why.
struct Left {
    std::string path, code, reason;
};
const std::vector<Left> left = {
    {"core/ir/parse.cpp", "what ==", "a keyword of a program's text"},
    {"core/lua/record/data_keys.cpp", "given.table !=", "the table [data] of the configuration"},
    {"core/lua/record/data_keys.cpp", "given.table ==", "the table [data] of the configuration"},
    {"core/plugin/loader.cpp", "file.kind ==", "a kind of plugin"},
    {"core/plugin/named.cpp", "kind ==", "a kind of plugin"},
    {"core/run/data/row_reader.cpp", "input_.name ==", "an input of a program"},
    {"core/run/evaluate/row_scores.cpp", "input.name ==", "an input of a program"},
    {"core/run/verify/inject.cpp", "key ==", "a word of --inject"},
};

/// The lines that compare with a plugin's name, or have one with its kind.
std::vector<size_t> comparisons(const std::vector<std::string>& lines, const std::set<std::string>& names) {
    const Code code(lines);
    std::vector<size_t> found;
    for (const Literal& literal : code.literals)
        if (names.count(literal.text) != 0 && (code.compared(literal) || literal.text.find('/') != std::string::npos))
            found.push_back(code.line_of(literal.begin));
    return found;
}

}  // namespace

TEST_CASE("core compares nothing with the name of a plugin") {
    const std::set<std::string> names = plugin_names();
    std::set<const Left*> used;
    for (const Source& source : policy::sources()) {
        if (!source.in("core") || !(source.is(".h") || source.is(".cpp"))) continue;
        for (const size_t line : comparisons(source.lines, names)) {
            const std::string& text = source.lines[line - 1];
            const auto known = std::find_if(left.begin(), left.end(), [&](const Left& one) {
                return one.path == source.path && text.find(one.code) != std::string::npos;
            });
            if (known == left.end())
                FAIL_CHECK(source.path << ":" << line << ": ask the contract instead: " << text);
            else
                used.insert(&*known);
        }
    }
    for (const Left& one : left)
        if (used.count(&one) == 0) FAIL_CHECK(one.path << " no longer has " << one.code << ": take it out of the list");
}

TEST_CASE("the rule about names of plugins sees each comparison") {
    const std::set<std::string> names = plugin_names();
    for (const char* name : {"cpu", "posix", "shm", "pipeline", "text", "tcp", "swish_gate", "slurm"})
        CHECK(names.count(name) == 1);
    for (const char* line :
         {"if (settings.device == \"cpu\") return;", "return \"shm\" != transport;", "f(\"transport/shm\");",
          "kind == std::string_view(\"posix\")", "name == (a ? \"text\" : \"x\")"})
        if (comparisons({line}, names).size() != 1) FAIL_CHECK(line);
    for (const char* line : {"// device == \"cpu\"", "std::string device = \"cpu\";", "run.text(\"store\", \"posix\")",
                             "f(\"device == \\\"cpu\\\"\");", "name == \"cpus\""})
        if (!comparisons({line}, names).empty()) FAIL_CHECK(line);
}
