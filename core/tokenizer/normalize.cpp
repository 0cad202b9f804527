#include "tokenizer/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "orrery/error.h"
#include "tokenizer/characters.h"

namespace orrery::tokenizer {
namespace {

/// Combining marks and parts of composed characters that Unicode added after version 9 and up to 15, the version of
/// libutf8proc 2.8. The reference (the crate unicode-normalization-alignments) has the tables of version 9 and leaves
/// such characters in place; tokenizers were trained on such texts. tests/tokenizer/conformance.py compares all of
/// them.
struct Late {
    char32_t first, last;
};
constexpr Late late[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
    {0xa82c, 0xa82c},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x1183a},
    {0x11930, 0x11930}, {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
    {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97},
    {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae},
    {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
};

bool is_late(char32_t character) {
    if (character < late[0].first) return false;
    const auto after = std::upper_bound(std::begin(late), std::end(late), character,
                                        [](char32_t c, const Late& range) { return c < range.first; });
    return after != std::begin(late) && character <= (after - 1)->last;
}

/// Whether all characters are below U+0300: such characters are already composed, and none combines with another.
bool is_plain(std::string_view text) {
    return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xcc; });
}

void append_composed(std::string_view text, std::string& out) {
    if (text.empty()) return;
    utf8proc_uint8_t* composed = nullptr;
    const utf8proc_ssize_t length =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (length < 0) throw std::bad_alloc();  // the text is valid, so memory has run out
    out.append(reinterpret_cast<const char*>(composed), static_cast<size_t>(length));
    std::free(composed);
}

}  // namespace

void compose(std::string& text, size_t& head) {
    if (is_plain(text)) return;
    std::string out;
    out.reserve(text.size());
    size_t from = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t next = at + length_of(text[at]);
        if (is_late(character_at(text.data() + at))) {
            append_composed(std::string_view(text).substr(from, at - from), out);
            out.append(text, at, next - at);
            from = next;
        }
        at = next;
    }
    append_composed(std::string_view(text).substr(from), out);
    if (head > 0 && !out.empty()) head = length_of(out[0]);
    text = std::move(out);
}

Normalizer::Normalizer(const Field& field) { read(field); }

void Normalizer::read(const Field& field) {
    const std::string& type = field.at("type").text();
    if (type == "Sequence") {
        field.only({"type", "normalizers"});
        const std::vector<Field> all = field.at("normalizers").items();
        for (const Field& one : all) read(one);
    } else if (type == "NFC") {
        field.only({"type"});
        steps_.push_back({Kind::nfc, "", Pattern("\n")});
    } else if (type == "Prepend") {
        field.only({"type", "prepend"});
        steps_.push_back({Kind::prepend, field.at("prepend").text(), Pattern("\n")});
    } else if (type == "Replace") {
        field.only({"type", "pattern", "content"});
        steps_.push_back({Kind::replace, field.at("content").text(), Pattern::read(field.at("pattern"))});
    } else {
        field.refuse_type("normalizers: NFC, Prepend, Replace, Sequence");
    }
}

void Normalizer::apply(std::string& text, size_t& head) const {
    for (const Step& step : steps_) {
        if (step.kind == Kind::nfc) compose(text, head);
        if (step.kind == Kind::replace) replace(step, text, head);
        if (step.kind == Kind::prepend && !text.empty()) {
            text.insert(0, step.text);
            if (head > 0) head += step.text.size();
        }
    }
}

std::string Normalizer::apply(const std::string& text) const {
    std::string out = text;
    size_t head = 0;
    apply(out, head);
    return out;
}

/// Replaces a pattern's matches. For `head`, inserted text counts as part of the last character that it replaces.
void Normalizer::replace(const Step& step, std::string& text, size_t& head) const {
    std::vector<Part> parts;
    step.pattern.cut(text, parts);
    std::string out;
    size_t new_head = 0;
    for (const Part& part : parts) {
        const std::string_view old = std::string_view(text).substr(part.begin, part.end - part.begin);
        if (part.match && old.empty())
            throw Error("normalizer: unsupported: the pattern of a Replace matches an empty text");
        out += part.match ? std::string_view(step.text) : old;
        if (part.match ? part.end <= head : part.begin < head)
            new_head = part.match || part.end <= head ? out.size() : out.size() - (part.end - head);
    }
    head = new_head;
    text = std::move(out);
}

}  // namespace orrery::tokenizer
