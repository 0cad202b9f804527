#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/fields.h"
#include "tokenizer/pattern.h"

namespace orrery::tokenizer {

/// Normalizes a text before it is split, by the file's steps in order: NFC, Prepend, Replace.
class Normalizer {
public:
    Normalizer() = default;
    /// Reads the normalizer of a tokenizer.json. Throws Error at the key of a type that is not supported.
    explicit Normalizer(const Field& field);

    bool empty() const { return steps_.empty(); }
    /// Replaces `text`, which must be valid UTF-8. Updates `head`, the number of leading bytes that come from the
    /// document's first character; it is 0 when the text does not begin there. Throws Error for a pattern that matches
    /// the empty text.
    void apply(std::string& text, size_t& head) const;
    std::string apply(const std::string& text) const;

private:
    enum class Kind { nfc, prepend, replace };
    struct Step {
        Kind kind;
        std::string text;  ///< Prepend, Replace: the text to insert
        Pattern pattern;
    };

    void read(const Field& field);
    void replace(const Step& step, std::string& text, size_t& head) const;

    std::vector<Step> steps_;
};

/// Converts to Unicode normalization form C with the tables of Python's `tokenizers`: characters newer than Unicode 9
/// stay unchanged and in place. `head` as in Normalizer::apply.
void compose(std::string& text, size_t& head);

}  // namespace orrery::tokenizer
