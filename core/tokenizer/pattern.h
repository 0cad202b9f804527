#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/fields.h"
#include "tokenizer/scan.h"

namespace orrery::tokenizer {

/// A range of a text, in bytes.
struct Range {
    size_t begin = 0, end = 0;
};

struct Part {
    size_t begin = 0, end = 0;
    bool match = false;
};

/// A search pattern: a text, or a regular expression in libonig's syntax.
class Pattern {
public:
    explicit Pattern(std::string text);
    /// Makes a pattern from a regular expression. Throws Error at the field when libonig cannot compile the expression.
    /// `by_hand`: if it is a published pattern, uses the hand-written scanner (scan.h), with the same result.
    static Pattern regex(const Field& field, bool by_hand = true);
    /// Returns the pattern of one of the published expressions in scan.h, which its scanner matches without libonig.
    static Pattern known(std::string_view text);
    /// Reads a pattern { "String": ... } or { "Regex": ... }.
    static Pattern read(const Field& field);

    /// Appends the parts of the text, matches and the text between them, in order and without gaps. As in Python's
    /// `tokenizers`, an empty match right after a match does not count, and the search continues one character later.
    /// Throws Error when libonig gives up.
    void cut(std::string_view text, std::vector<Part>& parts) const;

    /// Returns the hand-written scanner; nullptr: the pattern has none, or there may be text between its matches.
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
