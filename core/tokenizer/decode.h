#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/fields.h"
#include "tokenizer/pattern.h"

namespace orrery::tokenizer {

/// A decoder step of a file. The state of a text that is being decoded is in a `DecodeStage`.
struct DecodeStep {
    enum class Kind { byte_level, byte_fallback, fuse, replace, strip, metaspace };
    Kind kind = Kind::fuse;
    Pattern pattern{"\n"};        ///< Replace
    bool one_character = false;   ///< Replace: the pattern is a single character
    std::string content;          ///< Replace: the replacement; Strip: what is removed
    char32_t replacement = 0;     ///< Metaspace
    bool drop_first = false;      ///< Metaspace: replacements in the first token become nothing
    int64_t start = 0, stop = 0;  ///< Strip: maximum number removed at either end
};

/// Reads ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and Sequence. Throws Error at its key for any other.
std::vector<DecodeStep> read_decoders(const Field& field);

/// One step of decoding one text: takes tokens and gives tokens to the next stage. After Fuse or ByteLevel the whole
/// text is a single token, which is taken in parts.
class DecodeStage {
public:
    virtual ~DecodeStage();
    virtual void take(std::string_view token) = 0;
    virtual void finish() = 0;  ///< no more tokens
};

/// What happens to invalid UTF-8, as at the ends of a text that was cut.
enum class Unreadable { replaced, kept };  // `replaced`: by U+FFFD, like the reference

/// Makes the stages of `steps` and returns the first one; the last one appends to `out`. Both arguments must outlive
/// the stages. Without steps, tokens are joined by spaces.
std::unique_ptr<DecodeStage> make_stages(const std::vector<DecodeStep>& steps, std::string& out,
                                         Unreadable bytes = Unreadable::replaced);

}  // namespace orrery::tokenizer
