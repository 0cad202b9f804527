#include "config/bounds.h"

#include <fmt/format.h>

#include "base/text.h"
#include "orrery/error.h"

namespace orrery {

namespace {

/// Scans a TOML text once for long keys. Any text between separators (line end, = , { } [ ]) may be a dotted key.
class KeyScan {
public:
    KeyScan(std::string_view toml, const std::string& name) : toml_(toml), name_(name) {}

    void run() {
        if (toml_.starts_with("\xef\xbb\xbf")) at_ = line_start_ = key_start_ = 3;  // skips the byte order mark
        while (at_ < toml_.size()) {
            const char c = toml_[at_];
            if (static_cast<unsigned char>(c) >= 0x80) refuse_character();
            if (c == '"' || c == '\'') {
                skip_string(c);
                continue;
            }
            if (c == '#') {
                skip_comment();
                continue;
            }
            if (c == '\n') {
                ++line_;
                line_start_ = at_ + 1;
            }
            ++at_;
            if (c == '\n' || c == '=' || c == ',' || c == '{' || c == '}' || c == '[' || c == ']') {
                key_start_ = at_;
                dots_ = 0;
            } else {
                dots_ += c == '.';
                judge();
            }
        }
    }

private:
    void judge() const {
        if (dots_ < max_key_parts && at_ - key_start_ <= max_key_bytes) return;
        const int column = static_cast<int>(key_start_ < line_start_ ? 1 : key_start_ - line_start_ + 1);
        throw Error({"", name_, line_, column},
                    fmt::format("key or value too long: more than {} dotted parts or {} bytes\n  "
                                "shorten it; strings may be longer when they are quoted",
                                max_key_parts, max_key_bytes));
    }

    /// Throws Error, since bare keys and values must be ASCII. For other characters toml++ would call code with an
    /// unreachable branch, to test whether they are spaces.
    [[noreturn]] void refuse_character() const {
        size_t end = at_ + 1;
        while (end < toml_.size() && (static_cast<unsigned char>(toml_[end]) & 0xc0) == 0x80) ++end;
        throw Error(
            {"", name_, line_, static_cast<int>(at_ - line_start_) + 1},
            fmt::format("bad TOML: non-ASCII character {} outside of quotes and comments\n  put it in quotes, or "
                        "replace it if it is a space pasted from a web page",
                        quote(toml_.substr(at_, end - at_))));
    }

    void skip_comment() {
        while (at_ < toml_.size() && toml_[at_] != '\n') ++at_;
    }

    /// Skips a quoted string. In a key, the string's bytes count towards the limit; a value ends at the next separator.
    void skip_string(char quote) {
        const std::string triple(3, quote);
        const bool multi = toml_.substr(at_, 3) == triple;
        at_ += multi ? 3 : 1;
        while (at_ < toml_.size()) {
            const char c = toml_[at_];
            if (multi && toml_.substr(at_, 3) == triple) {
                at_ += 3;
                break;
            }
            if (!multi && c == quote) {
                ++at_;
                break;
            }
            if (c == '\n') {
                if (!multi) break;  // not terminated; the parser reports that later
                ++line_;
                line_start_ = at_ + 1;
            }
            at_ += (c == '\\' && quote == '"' && at_ + 1 < toml_.size() && toml_[at_ + 1] != '\n') ? 2 : 1;
        }
        key_start_ = at_;
    }

    std::string_view toml_;
    const std::string& name_;
    size_t at_ = 0;
    size_t line_start_ = 0;
    size_t key_start_ = 0;
    int line_ = 1;
    int dots_ = 0;
};

}  // namespace

void check_toml_bounds(std::string_view toml, const std::string& name) {
    if (toml.size() > max_toml_bytes)
        throw Error({"", name, 0, 0}, fmt::format("configuration too large: {} bytes, the limit is {}\n  "
                                                  "is this a TOML file?",
                                                  toml.size(), max_toml_bytes));
    KeyScan(toml, name).run();
}

}  // namespace orrery
