#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/fields.h"
#include "tokenizer/pattern.h"

namespace orrery::tokenizer {

/// A text and the pieces that it is cut in, none of them empty. What lies between them was removed.
struct Pieces {
    std::string text;
    std::vector<Range> ranges;
    size_t head = 0;  ///< how many first bytes come from the document's first character

    // What steps work in, kept so that nothing is allocated for a word.
    std::vector<Part> parts;
    std::vector<Range> cut;
    std::string rewritten;

    /// One piece, the whole text.
    void begin(std::string_view whole, size_t from_first);
};

/// The pre-tokenizers of a file, in order: ByteLevel, Split, Digits, Metaspace, Sequence of such.
class PreTokenizer {
public:
    PreTokenizer() = default;
    /// Throws Error for any other type, at its key.
    explicit PreTokenizer(const Field& field);

    /// Cuts and rewrites. Where `in_bytes()`, pieces are bytes as they are; the alphabet of ByteLevel, which comes last
    /// then, stands for them.
    void apply(Pieces& pieces) const;
    bool in_bytes() const { return in_bytes_; }
    /// The last step writes its alphabet after all; for models that lack characters of it.
    void write_alphabet() { in_bytes_ = false; }
    /// Not null where all that is done is to cut a text in the matches of this scanner.
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
        bool individual = false;        ///< Digits
        std::string replacement;        ///< Metaspace
        Scheme scheme = Scheme::never;  ///< Metaspace
        bool split = true;              ///< Metaspace, ByteLevel: its pattern
        bool prefix = false;            ///< ByteLevel
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
