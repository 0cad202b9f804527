#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/fields.h"
#include "tokenizer/pattern.h"

namespace orrery::tokenizer {

/// What is done to a text before it is cut: NFC, Prepend, Replace, in order.
class Normalizer {
public:
    Normalizer() = default;
    /// Throws Error for any other type, at its key.
    explicit Normalizer(const Field& field);

    bool empty() const { return steps_.empty(); }
    /// Replaces `text`, which is valid UTF-8. `head`: how many of its first bytes come from the document's first
    /// character, 0 when it does not begin there; kept up to date. Throws Error for a pattern that matches nothing.
    void apply(std::string& text, size_t& head) const;
    std::string apply(const std::string& text) const;

private:
    enum class Kind { nfc, prepend, replace };
    struct Step {
        Kind kind;
        std::string text;  ///< to prepend, or to put in
        Pattern pattern;
    };

    void read(const Field& field);
    void replace(const Step& step, std::string& text, size_t& head) const;

    std::vector<Step> steps_;
};

/// Unicode's form C, of the tables that the reference has: what came after Unicode 9 stays as and where it is.
/// `head` as above.
void compose(std::string& text, size_t& head);

}  // namespace orrery::tokenizer
