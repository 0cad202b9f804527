#pragma once
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "orrery/program.h"

namespace orrery {

/// Reads one line of a program's text, left to right. Errors name the line and the text found. A copy can look ahead.
class Line {
public:
    /// Keeps references to `text` and `place`, the origin for errors.
    Line(std::string_view text, const Origin& place) : text_(text), place_(&place) {}

    [[noreturn]] void fail(const std::string& expected) const;
    bool done();                        ///< true when only blanks are left
    bool sees(std::string_view token);  ///< true when `token` comes next; like all reads, skips blanks first
    bool take(std::string_view token);
    void expect(std::string_view token);
    std::string_view bare();  ///< letters, digits and _ . - / +; "" when none come next
    std::string word();       ///< a bare or quoted word
    std::string quoted();
    int64_t integer() { return number<int64_t>("an integer"); }
    ValueId value();  ///< reads "%3"
    std::string_view rest();
    Origin origin();  ///< reads up to " by ", " at %", ";" or the end

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
