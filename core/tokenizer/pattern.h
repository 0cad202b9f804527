#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/fields.h"
#include "tokenizer/scan.h"

namespace orrery::tokenizer {

/// A stretch of a text, in bytes.
struct Range {
    size_t begin = 0, end = 0;
};

struct Part {
    size_t begin = 0, end = 0;
    bool match = false;
};

/// What is looked for in a text: a text, or a regular expression of libonig in its own syntax.
class Pattern {
public:
    explicit Pattern(std::string text);
    /// Throws Error, at the field, for what libonig does not compile. `by_hand`: published ones may be matched by
    /// `scan`, with the same result.
    static Pattern regex(const Field& field, bool by_hand = true);
    /// One of those that `scan` matches; nothing is compiled.
    static Pattern known(std::string_view text);
    /// Of { "String": ... } or { "Regex": ... }.
    static Pattern read(const Field& field);

    /// Appends the parts of the text, matches and what lies between, in order and without gaps. As the reference does:
    /// an empty match does not count behind a match, and the search goes on one character later. Throws Error where
    /// libonig gives up.
    void cut(std::string_view text, std::vector<Part>& parts) const;

    /// Not null where the matches follow each other without gaps and a scanner finds them.
    Scanner scanner() const { return scanner_; }

private:
    struct Compiled;
    Pattern() = default;
    void cut_by_regex(std::string_view text, std::vector<Part>& parts) const;

    std::string text_;
    std::shared_ptr<const Compiled> regex_;
    Scanner scanner_ = nullptr;
};

}  // namespace orrery::tokenizer
