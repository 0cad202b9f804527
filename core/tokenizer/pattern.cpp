#include "tokenizer/pattern.h"

#include <fmt/format.h>
#include <oniguruma.h>

#include <mutex>

#include "base/json.h"
#include "base/text.h"
#include "tokenizer/characters.h"

namespace orrery::tokenizer {
namespace {

using Bytes = const OnigUChar*;

Bytes bytes(const char* text) { return reinterpret_cast<Bytes>(text); }

std::string reason(int code, const OnigErrorInfo* info) {
    OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
    const int length = info ? onig_error_code_to_str(text, code, info) : onig_error_code_to_str(text, code);
    return {reinterpret_cast<const char*>(text), static_cast<size_t>(length)};
}

/// Reused memory for the match positions that libonig returns, one object per thread.
struct Region {
    OnigRegion* region = onig_region_new();
    ~Region() { onig_region_free(region, 1); }
};

OnigRegion* thread_region() {
    thread_local const Region region;
    return region.region;
}

}  // namespace

struct Pattern::Compiled {
    Compiled(const std::string& pattern, std::string& problem) {
        static std::once_flag once;
        std::call_once(once, [] {
            OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
            onig_initialize(encodings, 1);
        });
        OnigErrorInfo info{};
        const int code = onig_new(&regex, bytes(pattern.data()), bytes(pattern.data() + pattern.size()),
                                  ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
        if (code != ONIG_NORMAL) problem = reason(code, &info);
    }
    ~Compiled() {
        if (regex) onig_free(regex);
    }
    Compiled(const Compiled&) = delete;
    Compiled& operator=(const Compiled&) = delete;

    regex_t* regex = nullptr;
};

Pattern::Pattern(std::string text) : text_(std::move(text)) {
    std::string problem;
    // an empty text, which matches between all characters, is left to libonig
    if (text_.empty()) regex_ = std::make_shared<Compiled>(text_, problem);
}

Pattern Pattern::regex(const Field& field, bool by_hand) {
    Pattern pattern;
    pattern.text_ = field.text();
    std::string problem;
    pattern.regex_ = std::make_shared<Compiled>(pattern.text_, problem);
    if (!problem.empty())
        field.refuse(fmt::format("is {}, which is not a valid regular expression for libonig: {}", quote(pattern.text_),
                                 problem));
    if (by_hand) pattern.scanner_ = known_scanner(pattern.text_);
    return pattern;
}

Pattern Pattern::known(std::string_view text) {
    Pattern pattern;
    pattern.text_ = text;
    pattern.scanner_ = known_scanner(text);
    return pattern;
}

Pattern Pattern::read(const Field& field) {
    field.only({"String", "Regex"});
    if (field.json().size() != 1) field.refuse("must have exactly one of the keys String and Regex");
    if (field.has("Regex")) return regex(field.at("Regex"));
    return Pattern(field.at("String").text());
}

void Pattern::cut(std::string_view text, std::vector<Part>& parts) const {
    if (scanner_) {
        for (size_t at = 0; at < text.size();) {
            const size_t end = scanner_(text, at);
            parts.push_back({at, end, true});
            at = end;
        }
        return;
    }
    if (regex_) return cut_by_regex(text, parts);
    size_t before = 0;
    for (size_t at = text.find(text_); at != std::string_view::npos; at = text.find(text_, before)) {
        if (before < at) parts.push_back({before, at, false});
        before = at + text_.size();
        parts.push_back({at, before, true});
    }
    if (before < text.size()) parts.push_back({before, text.size(), false});
}

void Pattern::cut_by_regex(std::string_view text, std::vector<Part>& parts) const {
    OnigRegion* region = thread_region();
    const Bytes begin = bytes(text.data()), end = begin + text.size();
    size_t before = 0, from = 0;
    bool skip_empty = false;
    while (from <= text.size()) {
        const int found = onig_search(regex_->regex, begin, end, begin + from, end, region, ONIG_OPTION_NONE);
        if (found == ONIG_MISMATCH) break;
        if (found < 0)
            throw Error(fmt::format("the regular expression {} failed on a text of {}: {}", quote(text_),
                                    bytes_text(static_cast<int64_t>(text.size())), reason(found, nullptr)));
        const auto at = static_cast<size_t>(region->beg[0]), stop = static_cast<size_t>(region->end[0]);
        from = stop;
        if (at == stop) {
            from += stop < text.size() ? length_of(text[stop]) : 1;
            if (skip_empty) {
                skip_empty = false;
                continue;
            }
        } else {
            skip_empty = true;
        }
        if (before != at) parts.push_back({before, at, false});
        parts.push_back({at, stop, true});
        before = stop;
    }
    if (before != text.size()) parts.push_back({before, text.size(), false});
}

}  // namespace orrery::tokenizer
