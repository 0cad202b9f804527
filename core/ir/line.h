#pragma once
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "orrery/program.h"

namespace orrery {

/// Reads one line of a program's text, left to right. Copy it to look ahead. Errors name the line and the text found.
class Line {
public:
    /// Keeps references to `text` and `place`. `place`: what errors name as the origin of the line.
    Line(std::string_view text, const Origin& place) : text_(text), place_(&place) {}

    [[noreturn]] void fail(const std::string& expected) const;
    bool done();                        ///< true if only blanks are left on the line
    bool sees(std::string_view token);  ///< true if `token` comes next, after blanks; does not read it
    bool take(std::string_view token);
    void expect(std::string_view token);
    std::string_view bare();  ///< reads letters, digits and _ . - / +; "" if none come next
    std::string word();
    std::string quoted();
    int64_t integer() { return number<int64_t>("an integer"); }
    ValueId value();  ///< reads a value's id: "%3"
    std::string_view rest();
    Origin origin();  ///< reads an origin, up to " by ", " at %", ";" or the end

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
