#include "tokenizer/scan.h"

#include "tokenizer/characters.h"

namespace orrery::tokenizer {

const std::string_view gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

constexpr uint8_t word_classes = is_letter | is_number | is_space;

/// A text with the classes of its characters; positions beyond its end have no class.
class Reader {
public:
    explicit Reader(std::string_view text) : text_(text), classes_(character_classes()) {}

    bool ends(size_t at) const { return at >= text_.size(); }
    char byte(size_t at) const { return ends(at) ? '\0' : text_[at]; }
    size_t next(size_t at) const { return at + length_of(text_[at]); }
    /// Returns which of the classes letter, number and space a character has, as flags; 0: none.
    uint8_t classes(size_t at) const { return classes_[character_at(text_.data() + at)] & word_classes; }
    bool is(size_t at, uint8_t wanted) const { return !ends(at) && (classes(at) & wanted) != 0; }
    bool other(size_t at) const { return !ends(at) && classes(at) == 0; }
    bool line_end(size_t at) const { return !ends(at) && (text_[at] == '\r' || text_[at] == '\n'); }
    size_t over(size_t at, uint8_t wanted) const {
        while (is(at, wanted)) at = next(at);
        return at;
    }
    size_t over_others(size_t at) const {
        while (other(at)) at = next(at);
        return at;
    }

private:
    std::string_view text_;
    const uint8_t* classes_;
};

/// Returns the end of the contraction 's 't 're 've 'm 'll 'd at `at`; 0 when there is none.
size_t contraction(const Reader& text, size_t at, bool any_case) {
    const auto letter = [&](size_t i) {
        const char c = text.byte(i);
        return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    };
    const char first = letter(at + 1), second = first ? letter(at + 2) : '\0';
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
    if (first == 'l' && second == 'l') return at + 3;
    // U+017F, the long s, equals s if case is ignored
    if (any_case && text.byte(at + 1) == '\xc5' && text.byte(at + 2) == '\xbf') return at + 3;
    return 0;
}

/// Returns the end of \s+(?!\S)|\s+ in the spaces [at, end): all but the last space when text follows; at least one.
size_t spaces(const Reader& text, size_t at, size_t end) {
    if (text.ends(end)) return end;
    size_t last = at;
    for (size_t i = at; i < end; i = text.next(i)) last = i;
    return last > at ? last : end;
}

size_t gpt2(std::string_view whole, size_t at) {
    const Reader text(whole);
    if (text.byte(at) == '\'')
        if (const size_t end = contraction(text, at, false)) return end;
    const size_t from = text.byte(at) == ' ' && !text.ends(at + 1) ? at + 1 : at;
    const uint8_t classes = text.classes(from);
    if (classes & is_letter) return text.over(from, is_letter);
    if (classes & is_number) return text.over(from, is_number);
    if (classes == 0) return text.over_others(from);
    return spaces(text, at, text.over(at, is_space));
}

/// Scanner of Llama 3's and Qwen2's patterns, which differ in the maximum number of digits in a match.
template <int digits>
size_t lines(std::string_view whole, size_t at) {
    const Reader text(whole);
    if (text.byte(at) == '\'')
        if (const size_t end = contraction(text, at, true)) return end;
    const uint8_t classes = text.classes(at);
    if (classes & is_letter) return text.over(at, is_letter);
    if (classes & is_number) {
        size_t end = text.next(at);
        for (int i = 1; i < digits && text.is(end, is_number); ++i) end = text.next(end);
        return end;
    }
    if (!text.line_end(at) && text.is(text.next(at), is_letter)) return text.over(text.next(at), is_letter);
    if (classes == 0 || (text.byte(at) == ' ' && text.other(at + 1))) {
        size_t end = text.over_others(classes == 0 ? at : at + 1);
        while (text.line_end(end)) ++end;
        return end;
    }
    size_t end = at, after_line = 0;
    for (; text.is(end, is_space); end = text.next(end))
        if (text.line_end(end)) after_line = end + 1;
    return after_line ? after_line : spaces(text, at, end);
}

}  // namespace

Scanner known_scanner(std::string_view pattern) {
    if (pattern == gpt2_pattern) return gpt2;
    if (pattern == llama3_pattern) return lines<3>;
    if (pattern == qwen2_pattern) return lines<1>;
    return nullptr;
}

}  // namespace orrery::tokenizer
