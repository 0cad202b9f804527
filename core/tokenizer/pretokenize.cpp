#include "tokenizer/pretokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "tokenizer/characters.h"

namespace orrery::tokenizer {
namespace {

/// Cuts a text into parts: each character for which `is` holds is a match, and text between those is not.
template <class Is>
void cut_at(std::string_view text, std::vector<Part>& parts, Is is) {
    size_t before = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t next = at + length_of(text[at]);
        if (is(text.substr(at, next - at))) {
            if (before < at) parts.push_back({before, at, false});
            parts.push_back({at, next, true});
            before = next;
        }
        at = next;
    }
    if (before < text.size()) parts.push_back({before, text.size(), false});
}

bool number(std::string_view character) {
    return (character_classes()[character_at(character.data())] & is_number) != 0;
}

class Rewriting {
public:
    explicit Rewriting(Pieces& pieces) : pieces_(pieces) {
        pieces_.rewritten.clear();
        pieces_.cut.clear();
    }

    std::string& text() { return pieces_.rewritten; }
    /// Records that the text written since `begin` replaces the range `old`.
    void piece(Range old, size_t begin) {
        if (old.begin < pieces_.head && old.end <= pieces_.head) head_ = text().size();
        pieces_.cut.push_back({begin, text().size()});
    }
    /// Sets `head` of the new text: the number of leading bytes that come from the document's first character.
    void head(size_t bytes) { head_ = bytes; }
    void finish() {
        pieces_.text.swap(pieces_.rewritten);
        pieces_.ranges.swap(pieces_.cut);
        pieces_.head = head_;
    }

private:
    Pieces& pieces_;
    size_t head_ = 0;
};

}  // namespace

void Pieces::begin(std::string_view whole, size_t from_first) {
    text.assign(whole);
    ranges.assign(1, {0, whole.size()});
    head = from_first;
}

PreTokenizer::PreTokenizer(const Field& field) {
    read(field);
    if (!steps_.empty()) in_bytes_ = steps_.back().kind == Kind::byte_level;
}

void PreTokenizer::read(const Field& field) {
    const std::string& type = field.at("type").text();
    Step step;
    if (type == "Sequence") {
        field.only({"type", "pretokenizers"});
        const std::vector<Field> all = field.at("pretokenizers").items();
        for (const Field& one : all) read(one);
        return;
    }
    if (type == "Split") {
        read_split(field, step);
    } else if (type == "Digits") {
        field.only({"type", "individual_digits"});
        step.kind = Kind::digits;
        step.individual = field.at("individual_digits").truth();
        step.behaviour = step.individual ? Behaviour::isolated : Behaviour::contiguous;
    } else if (type == "Metaspace") {
        read_metaspace(field, step);
    } else if (type == "ByteLevel") {
        read_byte_level(field, step);
    } else {
        field.refuse_type("pre-tokenizers: ByteLevel, Digits, Metaspace, Sequence, Split");
    }
    steps_.push_back(std::move(step));
}

void PreTokenizer::read_split(const Field& field, Step& step) const {
    field.only({"type", "pattern", "behavior", "invert"});
    step.pattern = Pattern::read(field.at("pattern"));
    step.invert = field.at("invert").truth();
    const Field behaviour = field.at("behavior");
    static constexpr std::array<std::pair<const char*, Behaviour>, 5> names = {{
        {"Removed", Behaviour::removed},
        {"Isolated", Behaviour::isolated},
        {"MergedWithPrevious", Behaviour::merged_with_previous},
        {"MergedWithNext", Behaviour::merged_with_next},
        {"Contiguous", Behaviour::contiguous},
    }};
    const auto* found =
        std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.first == behaviour.text(); });
    if (found == names.end())
        behaviour.refuse(
            fmt::format("is {}, expected Removed, Isolated, MergedWithPrevious, MergedWithNext or "
                        "Contiguous",
                        quote(behaviour.text())));
    step.behaviour = found->second;
}

void PreTokenizer::read_metaspace(const Field& field, Step& step) const {
    field.only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
    step.kind = Kind::metaspace;
    append_character(step.replacement, field.at("replacement").character());
    const std::string scheme = field.text_or("prepend_scheme", "always");
    if (scheme != "always" && scheme != "first" && scheme != "never")
        field.at("prepend_scheme").refuse(fmt::format("is {}, expected always, first or never", quote(scheme)));
    step.scheme = scheme == "always" ? Scheme::always : scheme == "first" ? Scheme::first : Scheme::never;
    // In a tokenizer.json from before version 0.19, Metaspace has only the key add_prefix_space.
    if (!field.truth_or("add_prefix_space", true)) {
        if (field.has("prepend_scheme") && step.scheme != Scheme::never)
            field.at("add_prefix_space").refuse("is false, which contradicts prepend_scheme = " + scheme);
        if (!field.has("prepend_scheme"))
            field.refuse("has add_prefix_space = false, but prepend_scheme = never is missing");
    }
    step.split = field.truth_or("split", true);
    step.behaviour = Behaviour::merged_with_next;
    step.pattern = Pattern(step.replacement);
}

void PreTokenizer::read_byte_level(const Field& field, Step& step) const {
    field.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    step.kind = Kind::byte_level;
    step.prefix = field.at("add_prefix_space").truth();
    field.at("trim_offsets").truth();  // only affects offsets of tokens, which Orrery does not compute
    step.split = field.truth_or("use_regex", true);
    step.pattern = Pattern::known(gpt2_pattern);
}

Scanner PreTokenizer::only_scanner() const {
    if (steps_.empty() || !in_bytes_ || steps_.back().prefix) return nullptr;
    const Step& last = steps_.back();
    if (steps_.size() == 1) return last.split ? last.pattern.scanner() : nullptr;
    const Step& first = steps_.front();
    const bool matches =
        first.kind == Kind::split && first.pattern.scanner() &&
        (first.behaviour == Behaviour::isolated || (first.behaviour == Behaviour::removed && first.invert));
    return steps_.size() == 2 && matches && !last.split ? first.pattern.scanner() : nullptr;
}

void PreTokenizer::apply(Pieces& pieces) const {
    for (const Step& step : steps_) {
        if (step.kind == Kind::metaspace) metaspace(step, pieces);
        if (step.kind == Kind::byte_level && step.prefix) prefix(pieces);
        const bool cuts = step.kind == Kind::split || step.kind == Kind::digits || step.split;
        if (cuts) split(step, pieces);
        if (step.kind == Kind::byte_level && !(in_bytes_ && &step == &steps_.back())) alphabet(pieces);
    }
}

void PreTokenizer::split(const Step& step, Pieces& pieces) const {
    pieces.cut.clear();
    const std::string_view text = pieces.text;
    for (const Range& range : pieces.ranges) {
        pieces.parts.clear();
        const std::string_view piece = text.substr(range.begin, range.end - range.begin);
        if (step.kind == Kind::digits)
            cut_at(piece, pieces.parts, number);
        else
            step.pattern.cut(piece, pieces.parts);
        if (step.invert)
            for (Part& part : pieces.parts) part.match = !part.match;
        arrange(step.behaviour, pieces.parts, range.begin, pieces.cut);
    }
    pieces.ranges.swap(pieces.cut);
}

/// Forms pieces from parts like Python's `tokenizers`: a match joins a neighbour only when the part before the match,
/// in reading direction, is not a match.
void PreTokenizer::arrange(Behaviour behaviour, const std::vector<Part>& parts, size_t offset,
                           std::vector<Range>& ranges) {
    const size_t first = ranges.size();
    const auto add = [&](const Part& part) { ranges.push_back({offset + part.begin, offset + part.end}); };
    bool before = false;
    if (behaviour == Behaviour::merged_with_next) {
        for (size_t i = parts.size(); i-- > 0;) {
            const Part& part = parts[i];
            if (part.match && !before && ranges.size() > first)
                ranges.back().begin = offset + part.begin;
            else
                add(part);
            before = part.match;
        }
        std::reverse(ranges.begin() + static_cast<std::ptrdiff_t>(first), ranges.end());
    } else {
        for (const Part& part : parts) {
            const bool joins = behaviour == Behaviour::contiguous             ? part.match == before
                               : behaviour == Behaviour::merged_with_previous ? part.match && !before
                                                                              : false;
            if (behaviour == Behaviour::removed && part.match) continue;
            if (joins && ranges.size() > first)
                ranges.back().end = offset + part.end;
            else
                add(part);
            before = part.match;
        }
    }
    const auto empty = [](const Range& range) { return range.begin == range.end; };
    ranges.erase(std::remove_if(ranges.begin() + static_cast<std::ptrdiff_t>(first), ranges.end(), empty),
                 ranges.end());
}

void PreTokenizer::metaspace(const Step& step, Pieces& pieces) const {
    Rewriting out(pieces);
    const std::string_view text = pieces.text;
    for (const Range& range : pieces.ranges) {
        const std::string_view piece = text.substr(range.begin, range.end - range.begin);
        const size_t begin = out.text().size();
        const bool starts = piece.starts_with(step.replacement) || piece[0] == ' ';
        const bool first = range.begin < pieces.head;
        if (!starts && (step.scheme == Scheme::always || (step.scheme == Scheme::first && first)))
            out.text() += step.replacement;
        for (size_t i = 0; i < piece.size(); ++i) {
            if (first && range.begin + i == pieces.head) out.head(out.text().size());
            if (piece[i] == ' ')
                out.text() += step.replacement;
            else
                out.text().push_back(piece[i]);
        }
        out.piece(range, begin);
    }
    out.finish();
}

void PreTokenizer::prefix(Pieces& pieces) const {
    Rewriting out(pieces);
    const std::string_view text = pieces.text;
    for (const Range& range : pieces.ranges) {
        const std::string_view piece = text.substr(range.begin, range.end - range.begin);
        const size_t begin = out.text().size();
        if (piece[0] != ' ') out.text().push_back(' ');
        if (range.begin < pieces.head && pieces.head < range.end)
            out.head(out.text().size() + pieces.head - range.begin);
        out.text() += piece;
        out.piece(range, begin);
    }
    out.finish();
}

void PreTokenizer::alphabet(Pieces& pieces) const {
    Rewriting out(pieces);
    const char32_t* letters = byte_alphabet();
    const std::string_view text = pieces.text;
    for (const Range& range : pieces.ranges) {
        const size_t begin = out.text().size();
        for (size_t i = range.begin; i < range.end; ++i) {
            if (i == pieces.head && range.begin < pieces.head) out.head(out.text().size());
            append_character(out.text(), letters[static_cast<unsigned char>(text[i])]);
        }
        out.piece(range, begin);
    }
    out.finish();
}

}  // namespace orrery::tokenizer
