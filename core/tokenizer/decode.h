#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/fields.h"
#include "tokenizer/pattern.h"

namespace orrery::tokenizer {

/// A decoder of a file. What it keeps while a text is decoded is in a `DecodeStage`.
struct DecodeStep {
    enum class Kind { byte_level, byte_fallback, fuse, replace, strip, metaspace };
    Kind kind = Kind::fuse;
    Pattern pattern{"\n"};        ///< Replace
    bool one_character = false;   ///< Replace: what it looks for is a text of one character
    std::string content;          ///< Replace: what is put in; Strip: what is taken off
    char32_t replacement = 0;     ///< Metaspace
    bool drop_first = false;      ///< Metaspace: none for the replacements in the first token
    int64_t start = 0, stop = 0;  ///< Strip: at most so many at either end
};

/// ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence. Throws Error for any other, at its key.
std::vector<DecodeStep> read_decoders(const Field& field);

/// One step of one text: takes tokens, gives tokens to the next. Behind Fuse or ByteLevel the whole text is a single
/// token, which comes in parts.
class DecodeStage {
public:
    virtual ~DecodeStage();
    virtual void take(std::string_view token) = 0;
    virtual void finish() = 0;  ///< no more tokens
};

/// Bytes that belong to no character, as at the ends of a text that was cut.
enum class Unreadable { replaced, kept };  // by U+FFFD, as the reference does

/// The stages of `steps`, the first one; what comes out of the last is added to `out`. Both must outlive it. Without
/// steps, tokens are joined by spaces.
std::unique_ptr<DecodeStage> make_stages(const std::vector<DecodeStep>& steps, std::string& out,
                                         Unreadable bytes = Unreadable::replaced);

}  // namespace orrery::tokenizer
