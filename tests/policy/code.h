#pragma once
#include <string>
#include <vector>

namespace policy {

struct Literal {
    size_t begin, end;  ///< of "text" in the code, with its quotes
    std::string text;
};

/// A source without its comments, in one string, and its string literals.
struct Code {
    std::string text;
    std::vector<Literal> literals;

    explicit Code(const std::vector<std::string>& lines);

    /// Up to 120 characters of code before it.
    std::string before(const Literal& literal) const;
    std::string after(const Literal& literal) const { return text.substr(literal.end, 8); }
    size_t line_of(size_t at) const;
    /// x == "literal", "literal" != x, x == (y ? "literal" : "other").
    bool compared(const Literal& literal) const;
};

}  // namespace policy
