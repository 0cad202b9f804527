// A text for people decides nothing: product code prints a Message, and neither searches nor compares its text.
#include <catch2/catch.hpp>
#include <regex>
#include <string>
#include <vector>

#include "source.h"

using policy::Source;

namespace {

/// The statements of a source in which the text of a Message is taken, without comments.
std::vector<std::string> statements_of(const Source& source) {
    std::string code;
    for (const std::string& line : source.lines) code += line.substr(0, line.find("//")) + " ";
    std::vector<std::string> all;
    for (size_t at = 0; (at = code.find("shown()", at)) != std::string::npos;) {
        const size_t begin = code.find_last_of(";{}", at) + 1,
                     end = std::min(code.find_first_of(";{}", at), code.size());
        all.push_back(code.substr(begin, end - begin));
        at = end;
    }
    return all;
}

/// The use of the text by a statement that is not printing, "" where there is none.
std::string problem_of(const std::string& statement) {
    static const std::regex searched(R"(shown\(\)\s*(\.\s*(?!c_str\b)\w+|\[))");
    static const std::regex compared(R"(shown\(\)\s*([=!]=|<=?[^<]|>=?[^>])|([=!]=|<|[^-]>)\s*[\w.:>()-]*\bshown\(\))");
    static const std::regex passed(
        R"(\b(str\w*cmp|strstr|memcmp|regex_\w+|search|find\w*|equal|split|hash|stoi|stoll|strto\w+|)"
        R"(sscanf|from_chars|parse\w*)\s*\([^()]*shown\(\))");
    static const std::regex named(R"(\b(string|string_view|auto)\s*&?\s+&?\w+\s*[=(])");
    if (std::regex_search(statement, searched)) return "searches it";
    if (std::regex_search(statement, compared)) return "compares it";
    if (std::regex_search(statement, passed)) return "gives it to what reads it";
    if (std::regex_search(statement, named)) return "gives it a name, by which it could be read";
    return "";
}

}  // namespace

TEST_CASE("no product code reads what is said to people") {
    size_t taken = 0;
    for (const Source& source : policy::sources()) {
        if (!(source.in("core") || source.in("plugins")) || !(source.is(".h") || source.is(".cpp"))) continue;
        for (const std::string& statement : statements_of(source)) {
            ++taken;
            if (source.path == "core/include/orrery/error.h") continue;  // where it is defined
            if (const std::string problem = problem_of(statement); !problem.empty())
                FAIL_CHECK(source.path << ":" << statement << "\n  " << problem
                                       << "; decide by a field of Loss (core/include/orrery/error.h)");
        }
    }
    CHECK(taken > 20);
}

TEST_CASE("the scan for texts that are read knows them") {
    for (const char* bad :
         {"if (loss.text.shown().find(\"rank \") == 0)", "return lost().shown() == \"died\"",
          "if (\"died\" == loss.text.shown())", "const std::string text = loss.text.shown()",
          "const auto& text = loss.text.shown()", "if (std::strstr(loss.text.shown().c_str(), \"rank\"))",
          "why.shown()[0]", "std::regex_search(how.shown(), words)", "return a.shown() < b.shown()"})
        if (problem_of(bad).empty()) FAIL_CHECK(bad);
    for (const char* good : {"std::fprintf(stderr, \"%s\", loss.text.shown().c_str())",
                             "throw Error(what + lost.shown(), x)", "line[\"how\"] = how.text.shown()",
                             "return lost.shown()", "who.empty() ? words : who.shown() + \" (NCCL: \""})
        if (!problem_of(good).empty()) FAIL_CHECK(good);
}
