// How many files of the product name each op by hand: what a new op must touch stays few.
#include <catch2/catch.hpp>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "source.h"

using policy::Source;

namespace {

/// The definition, the manual's row, the reference, the CPU, CUDA, the table of kernels and the script library.
constexpr size_t most = 7;

/// They have kernels of many kinds.
const std::set<std::string> free_of_it{"matmul", "attention"};

/// Ops above that, with how many files: the numbers only shrink. An op with kernels has its member of the table in
/// kernels/kernels.h and its line in kernels/rules beside the definition, the row and three kernels: seven before any
/// script uses it; one on single elements is named by kernels/kernels.h alone of the two.
const std::map<std::string, size_t> exceptions{
    // The script library uses them: one more than the seven that have kernels.
    {"all_finite", 8},
    {"assign_slots", 8},
    {"combine", 8},
    {"dispatch", 8},
    {"grouped_matmul", 8},
    {"embedding", 8},
    {"layernorm", 8},
    {"one_hot", 8},
    {"rmsnorm", 8},
    {"roll", 8},
    {"rope", 8},
    {"scatter_add", 8},
    {"sumsq", 8},
    {"swiglu", 8},
    {"cross_entropy", 8},
    // The pass quantize_products inserts it.
    {"quantize", 8},
    // Operators of values; what sums, and what makes partial results whole.
    {"add", 11},
    {"sub", 8},
    {"mul", 8},
    {"div", 8},
    {"pow", 8},
    // Methods of values in Lua beside the ops; cuts and constants that passes insert.
    {"dropout", 10},
    {"slice", 8},
    {"full", 8},
    // The script library writes attention in them.
    {"softmax", 8},
    {"transpose", 8},
    // With kernels of their own in products and in launches of many.
    {"gelu", 12},
    {"tanh", 9},
    {"adamw", 10},
    // Words of other things, too: kinds of reductions, an attribute, an option, a command, a method.
    {"sum", 10},
    {"max", 8},
    {"scale", 16},
    {"top_k", 11},
    {"gather", 12},
    // Of no value's: a function of scripts beside the seven.
    {"iota", 8},
};

const std::set<std::string> collectives{"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                        "shard",      "transfer",   "stage_sum"};

/// English words and functions of mathematics: in kernels they are ops only as Unary::exp or in the table of kernels.
const std::set<std::string> words{
    "abs",     "add",           "cast",    "concat",     "cos",       "div",     "equal", "exp",  "full",
    "greater", "greater_equal", "less",    "log",        "max",       "mul",     "neg",   "pad",  "pow",
    "random",  "scale",         "select",  "less_equal", "slice",     "sigmoid", "sin",   "sqrt", "square",
    "sub",     "maximum",       "minimum", "sum",        "transpose", "reshape", "tanh",  "pack", "unpack",
};

std::set<std::string> op_names() {
    std::set<std::string> names;
    for (const Source& source : policy::sources())
        if (source.path == "core/ir/README.md") names.merge(policy::first_column(source, "| op |"));
    for (const std::string& collective : collectives) names.erase(collective);
    return names;
}

/// The product: not the generated scripts/orrery/meta.lua, templates that people copy, manuals but the table of
/// ops, and the table of fusion.
bool counts(const Source& source) {
    if (source.path == "core/ir/README.md") return true;
    if (source.in("scripts/templates") || source.path == "core/compile/passes/fuse.cpp") return false;
    if (source.path == "scripts/orrery/meta.lua") return false;
    if (source.in("core/tokenizer")) return false;  // its "dropout" is a key of tokenizer.json
    const bool product = source.in("core") || source.in("kernels") || source.in("plugins") || source.in("scripts");
    return product && (source.is(".cpp") || source.is(".h") || source.is(".cu") || source.is(".lua"));
}

/// A file's text without comments.
std::string code_of(const Source& source) {
    const bool lua = source.is(".lua");
    std::string text;
    for (const std::string& line : source.lines) {
        if (line.starts_with("#include")) continue;
        text += source.is(".md") ? line : line.substr(0, line.find(lua ? "--" : "//"));
        text += '\n';
    }
    return text;
}

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Each place where a word stands alone.
std::vector<size_t> places(const std::string& text, const std::string& word) {
    std::vector<size_t> found;
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
        const size_t end = at + word.size();
        if ((at == 0 || !is_letter(text[at - 1])) && (end == text.size() || !is_letter(text[end]))) found.push_back(at);
    }
    return found;
}

/// "one(", "add(L, x.tape, ": a call that records an op makes use of it, as a script does.
bool recorded(const std::string& text, size_t quote) {
    static const std::regex call(R"(\b(one|add|record)\((L, )?(x\.tape, )?$)");
    const size_t from = quote < 40 ? 0 : quote - 40;
    return std::regex_search(text.substr(from, quote - from), call);
}

bool names(const Source& source, const std::string& text, const std::string& op) {
    const bool kernels = source.in("kernels") || source.in("plugins/device");
    for (const size_t at : places(text, op)) {
        const char before = at == 0 ? ' ' : text[at - 1];
        const size_t end = at + op.size();
        const char after = end < text.size() ? text[end] : ' ';
        if (source.is(".md")) {
            if (before == '`' && after == '`') return true;
        } else if (before == '"' && after == '"') {
            if (!recorded(text, at - 1)) return true;
        } else if (source.is(".lua")) {
            const size_t next = text.find_first_not_of(' ', end);
            if (before == ':' && next != std::string::npos && (text[next] == '(' || text[next] == '{')) return true;
        } else if (kernels && words.count(op) != 0 && source.path != "kernels/kernels.h") {
            static const std::regex list(R"(\b(Unary|Binary|Compare|UnaryGrad|[A-Z])::$)");
            if (std::regex_search(text.substr(at < 20 ? 0 : at - 20, at < 20 ? at : 20), list)) return true;
        } else if (kernels && before != ':' && before != '.' && before != '>') {
            return true;
        }
    }
    return false;
}

/// By op the files that name it, with the script library as one.
std::map<std::string, std::set<std::string>> files_of_ops() {
    std::map<std::string, std::set<std::string>> files;
    const std::set<std::string> ops = op_names();
    for (const Source& source : policy::sources()) {
        if (!counts(source)) continue;
        const std::string text = code_of(source);
        for (const std::string& op : ops)
            if (names(source, text, op)) files[op].insert(source.in("scripts/orrery") ? "scripts/orrery" : source.path);
    }
    return files;
}

std::string line_of(const std::string& op, const std::set<std::string>& files) {
    std::string line = op + " " + std::to_string(files.size()) + ":";
    for (const std::string& file : files) line += " " + file;
    return line + "\n";
}

}  // namespace

TEST_CASE("few files of the product name an op") {
    const auto all = files_of_ops();
    CHECK(all.size() > 50);
    for (const auto& [op, files] : all) {
        if (free_of_it.count(op) != 0) continue;
        const auto known = exceptions.find(op);
        if (known == exceptions.end() && files.size() > most)
            FAIL_CHECK(line_of(op, files) << "at most " << most
                                          << " files may name it: ask for a trait of OpDef (core/include/orrery/op.h)");
        if (known == exceptions.end()) continue;
        if (files.size() > known->second)
            FAIL_CHECK(line_of(op, files) << "it was named by " << known->second << " files, no more may be added");
        if (files.size() < known->second || files.size() <= most)
            FAIL_CHECK(line_of(op, files) << "fewer files name it than `exceptions` says: lower it there to "
                                          << files.size() << (files.size() <= most ? ", or take it out" : ""));
    }
    for (const auto& exception : exceptions)
        if (all.count(exception.first) == 0) FAIL_CHECK("there is no op " << exception.first);
}

// build/tests/policy_tests "[op_files]"
TEST_CASE("the files that name each op, printed", "[.][op_files]") {
    for (const auto& [op, files] : files_of_ops()) std::cout << line_of(op, files);
}

TEST_CASE("the rule about files that name an op sees each way") {
    const auto sees = [](const std::string& path, const std::string& line, const std::string& op) {
        const Source source{path, {line}};
        return names(source, code_of(source), op);
    };
    CHECK(sees("core/a.cpp", "if (kind == \"softmax\") f();", "softmax"));
    CHECK(sees("core/ir/README.md", "| `exp` `log` | (x) -> y | |", "log"));
    CHECK(sees("scripts/orrery/nn.lua", "return x:gelu()", "gelu"));
    CHECK(sees("kernels/cuda/norm.h", "void softmax(Call& c, In x);", "softmax"));
    CHECK(sees("kernels/reference/a.cpp", "case Unary::exp: return f(x);", "exp"));
    CHECK_FALSE(sees("core/a.cpp", "build.one(\"softmax\", {x}, {});", "softmax"));
    CHECK_FALSE(sees("core/a.cpp", "x = softmax;  // \"softmax\"", "softmax"));
    CHECK_FALSE(sees("scripts/orrery/nn.lua", "local gelu = 1 -- x:gelu()", "gelu"));
    CHECK_FALSE(sees("kernels/reference/a.cpp", "y = std::exp(x);", "exp"));
    CHECK_FALSE(sees("kernels/cuda/norm.h", "void softmax_grad(Call& c);", "softmax"));
}
