#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/fields.h"
#include "tokenizer/pattern.h"

namespace orrery::tokenizer {

/// A step of a tokenizer.json's decoder, without the state of a text, which DecodeStage has.
struct DecodeStep {
    enum class Kind { byte_level, byte_fallback, fuse, replace, strip, metaspace };
    Kind kind = Kind::fuse;
    Pattern pattern{"\n"};        ///< Replace: text or expression to replace
    bool one_character = false;   ///< Replace: the pattern is a single character
    std::string content;          ///< Replace: the replacement; Strip: the text to remove
    char32_t replacement = 0;     ///< Metaspace: character that stands for a space
    bool drop_first = false;      ///< Metaspace: removes replacement characters from the first token
    int64_t start = 0, stop = 0;  ///< Strip: max number of times that the text is removed at the start and at the end
};

/// Reads a decoder of ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence; throws Error at other types.
std::vector<DecodeStep> read_decoders(const Field& field);

/// A step at work on one text: takes tokens, and gives tokens to the next stage. After Fuse or ByteLevel the whole text
/// is a single token, which is taken in parts.
class DecodeStage {
public:
    virtual ~DecodeStage();
    virtual void take(std::string_view token) = 0;
    virtual void finish() = 0;  ///< called after the last token
};

/// What becomes of bytes that are not UTF-8: U+FFFD, as in Python's `tokenizers`, or the bytes unchanged.
enum class Unreadable { replaced, kept };

/// Makes a stage for each of `steps` and returns the first. The last one appends to `out`. `steps` and `out` must
/// outlive the stages. Without steps, tokens are joined by spaces.
std::unique_ptr<DecodeStage> make_stages(const std::vector<DecodeStep>& steps, std::string& out,
                                         Unreadable bytes = Unreadable::replaced);

}  // namespace orrery::tokenizer
