#include "code.h"

#include <algorithm>
#include <cctype>
#include <regex>

namespace policy {

Code::Code(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
        for (size_t i = 0; i < line.size() && line.compare(i, 2, "//") != 0; ++i) {
            const char quote = line[i];
            if (quote == '\'' && i + 2 < line.size() && line[i + (line[i + 1] == '\\' ? 3 : 2)] == '\'') {
                text += "'c'";
                i += line[i + 1] == '\\' ? 3 : 2;
                continue;
            }
            if (quote != '"') {
                text += quote;
                continue;
            }
            size_t end = i + 1;
            while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
            const std::string inside = line.substr(i + 1, end - i - 1);
            // Braces and quotes of a message are no code.
            const bool word = std::all_of(inside.begin(), inside.end(), [](unsigned char c) {
                return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-' || c == '/';
            });
            literals.push_back({text.size(), 0, word ? inside : ""});
            text += '"' + literals.back().text + '"';
            literals.back().end = text.size();
            i = end;
        }
        text += '\n';
    }
}

std::string Code::before(const Literal& literal) const {
    const size_t from = literal.begin < 120 ? 0 : literal.begin - 120;
    return text.substr(from, literal.begin - from);
}

size_t Code::line_of(size_t at) const {
    return static_cast<size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')) + 1;
}

bool Code::compared(const Literal& literal) const {
    static const std::regex equals(R"([=!]=\s*(std::string(_view)?\s*[({]\s*)?$)");
    static const std::regex chosen(R"([=!]=\s*\([^()]*[?:]\s*$)");  // kernel != (x ? "a" : "b")
    static const std::regex equals_after(R"(^\s*[=!]=)");
    const std::string code = before(literal);
    return std::regex_search(code, equals) || std::regex_search(code, chosen) ||
           std::regex_search(after(literal), equals_after);
}

}  // namespace policy
