#pragma once
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "orrery/program.h"

namespace orrery {

/// Reads one line of a program's text from left to right. Errors name the line and what was found. A copy looks ahead.
class Line {
public:
    /// Keeps references to both.
    Line(std::string_view text, const Origin& place) : text_(text), place_(&place) {}

    [[noreturn]] void fail(const std::string& expected) const;
    bool done();                        ///< nothing but blanks is left
    bool sees(std::string_view token);  ///< skips blanks first, as all others do
    bool take(std::string_view token);
    void expect(std::string_view token);
    std::string_view bare();  ///< letters, digits and _ . - / +; "" when there are none
    std::string word();       ///< bare or quoted
    std::string quoted();
    int64_t integer() { return number<int64_t>("an integer"); }
    ValueId value();  ///< "%3"
    std::string_view rest();
    Origin origin();  ///< up to " by ", " at %", ";" or the end

    template <class Number>
    Number number(std::string_view what) {
        blanks();
        Number value{};
        const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
        if (error != std::errc{}) fail(std::string(what));
        at_ = stop - text_.data();
        return value;
    }

private:
    void blanks();

    std::string_view text_;
    size_t at_ = 0;
    const Origin* place_;
};

}  // namespace orrery
