#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/fields.h"
#include "tokenizer/pattern.h"

namespace orrery::tokenizer {

/// A text and the pieces into which it is split, none empty. Text outside of the pieces is dropped.
struct Pieces {
    std::string text;
    std::vector<Range> ranges;
    size_t head = 0;  ///< number of leading bytes that come from the document's first character

    // Buffers of the steps, reused to avoid allocations for each word.
    std::vector<Part> parts;
    std::vector<Range> cut;
    std::string rewritten;

    /// Starts with one piece, the whole text.
    void begin(std::string_view whole, size_t from_first);
};

/// The pre-tokenizers of a file, in order: ByteLevel, Split, Digits, Metaspace, Sequence.
class PreTokenizer {
public:
    PreTokenizer() = default;
    /// Reads the pre-tokenizer of a tokenizer.json. Throws Error at the key of a type that is not supported.
    explicit PreTokenizer(const Field& field);

    /// Splits and rewrites the text. If in_bytes(), pieces are raw bytes: ByteLevel, the last step, writes no alphabet.
    void apply(Pieces& pieces) const;
    bool in_bytes() const { return in_bytes_; }
    /// Makes ByteLevel write its alphabet (a character for each byte), for models that lack some of these characters.
    void write_alphabet() { in_bytes_ = false; }
    /// Returns a scanner if the pre-tokenizer only splits at the scanner's matches; otherwise nullptr.
    Scanner only_scanner() const;

private:
    enum class Kind { split, digits, metaspace, byte_level };
    enum class Behaviour { removed, isolated, merged_with_previous, merged_with_next, contiguous };
    enum class Scheme { first, never, always };
    struct Step {
        Kind kind = Kind::split;
        Behaviour behaviour = Behaviour::isolated;
        Pattern pattern{"\n"};
        bool invert = false;
        bool individual = false;        ///< Digits: each digit is a piece
        std::string replacement;        ///< Metaspace: the text that replaces a space
        Scheme scheme = Scheme::never;  ///< Metaspace: when the replacement is put before the text
        bool split = true;              ///< Metaspace, ByteLevel: whether the step splits
        bool prefix = false;            ///< ByteLevel: whether a space is prepended
    };

    void read(const Field& field);
    void read_split(const Field& field, Step& step) const;
    void read_metaspace(const Field& field, Step& step) const;
    void read_byte_level(const Field& field, Step& step) const;
    void split(const Step& step, Pieces& pieces) const;
    static void arrange(Behaviour behaviour, const std::vector<Part>& parts, size_t offset, std::vector<Range>& ranges);
    void metaspace(const Step& step, Pieces& pieces) const;
    void prefix(Pieces& pieces) const;
    void alphabet(Pieces& pieces) const;

    std::vector<Step> steps_;
    bool in_bytes_ = false;
};

}  // namespace orrery::tokenizer
