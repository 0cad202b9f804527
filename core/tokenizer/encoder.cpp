#include "tokenizer/encoder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/processors.h"
#include "tokenizer/characters.h"

namespace orrery::tokenizer {

void Encoder::encode(std::string_view text, Around around, std::vector<int32_t>& ids) {
    const auto add = [&](Around part, const std::vector<int32_t>& special) {
        const bool asked = (static_cast<int>(around) & static_cast<int>(part)) != 0;
        if (asked) ids.insert(ids.end(), special.begin(), special.end());
    };
    if (valid_until(text) < text.size()) throw Error(not_utf8(text));
    counts_.unknown += count_unknown(text);
    const size_t size_before = ids.size();
    try {
        add(Around::begin, tokenizer_->before());
        const AddedTokens& added = tokenizer_->added(false);
        if (added.empty()) {
            segment(text, true, ids);
        } else {
            added.cut(text, [&](std::string_view part, const AddedToken* token) {
                if (token)
                    ids.push_back(token->id);
                else
                    segment(part, part.data() == text.data(), ids);
            });
        }
        add(Around::end, tokenizer_->behind());
    } catch (...) {
        ids.resize(size_before);
        throw;
    }
}

/// Encodes raw text between added tokens. `first`: the text begins the document.
void Encoder::segment(std::string_view text, bool first, std::vector<int32_t>& ids) {
    if (text.empty()) return;
    size_t head = first ? length_of(text[0]) : 0;
    std::string_view normalized = text;
    if (!tokenizer_->normalizer().empty()) {
        normalized_.assign(text);
        tokenizer_->normalizer().apply(normalized_, head);
        normalized = normalized_;
    }
    const AddedTokens& added = tokenizer_->added(true);
    if (added.empty()) return piece(normalized, head, ids);
    added.cut(normalized, [&](std::string_view part, const AddedToken* token) {
        const auto offset = static_cast<size_t>(part.data() - normalized.data());
        if (token)
            ids.push_back(token->id);
        else
            piece(part, head > offset ? std::min(head - offset, part.size()) : 0, ids);
    });
}

/// Encodes normalized text without added tokens.
void Encoder::piece(std::string_view text, size_t head, std::vector<int32_t>& ids) {
    if (text.empty()) return;
    if (const Scanner scanner = tokenizer_->pre_tokenizer().only_scanner()) {
        for (size_t at = 0; at < text.size();) {
            const size_t end = scanner(text, at);
            word(text.substr(at, end - at), ids);
            at = end;
        }
        return;
    }
    pieces_.begin(text, head);
    tokenizer_->pre_tokenizer().apply(pieces_);
    for (const Range& range : pieces_.ranges)
        word(std::string_view(pieces_.text).substr(range.begin, range.end - range.begin), ids);
}

void Encoder::word(std::string_view text, std::vector<int32_t>& ids) {
    if (tokenizer_->model().in_bytes())
        word_in_cache(text, ids);
    else
        word_of_characters(text, ids);
}

/// Encodes a text as one word, for a tokenizer without pre-tokenizer; splits it where no merge joins characters.
void Encoder::word_of_characters(std::string_view text, std::vector<int32_t>& ids) {
    const BpeModel& model = tokenizer_->model();
    if (const int32_t whole = model.whole_word(text); whole >= 0) {
        ids.push_back(whole);
        return;
    }
    size_t begin = 0;
    if (model.can_cut()) {
        char32_t left = character_at(text.data());
        for (size_t at = length_of(text[0]); at < text.size(); at += length_of(text[at])) {
            const char32_t right = character_at(text.data() + at);
            if (model.cuts(left, right)) {
                word_in_cache(text.substr(begin, at - begin), ids);
                begin = at;
            }
            left = right;
        }
    }
    word_in_cache(text.substr(begin), ids);
}

void Encoder::word_in_cache(std::string_view text, std::vector<int32_t>& ids) {
    const uint64_t hash = WordCache::hash(text);
    const WordCache::Ids known = cache_.find(text, hash);
    if (known.first) {
        for (size_t i = 0; i < known.count; ++i) ids.push_back(known.first[i]);
        return;
    }
    const int64_t lost = counts_.lost;
    merge(text);
    ids.insert(ids.end(), merged_.begin(), merged_.end());
    if (counts_.lost == lost) cache_.put(text, hash, merged_);  // not cached, so that lost characters count each time
}

void Encoder::merge(std::string_view text) {
    const BpeModel& model = tokenizer_->model();
    merged_.clear();
    if (!model.in_bytes()) {
        model.characters(text, merged_, counts_.lost);
    } else if (const int32_t whole = model.whole_word(text); whole >= 0) {
        merged_.push_back(whole);
        return;
    } else {
        for (const char c : text) merged_.push_back(model.byte_ids()[static_cast<unsigned char>(c)]);
    }
    merger_.merge(model, merged_);
}

Encoders::Encoders(std::shared_ptr<const Tokenizer> tokenizer, int threads) : tokenizer_(std::move(tokenizer)) {
    for (int i = 0; i < std::max(threads, 1); ++i) encoders_.push_back(std::make_unique<Encoder>(*tokenizer_));
}

void Encoders::each(size_t count, const std::function<void(Encoder&, size_t)>& each) {
    in_parallel(count, encoders_.size(), [&](size_t thread, size_t i) { each(*encoders_[thread], i); });
}

std::vector<std::vector<int32_t>> Encoders::encode(std::span<const std::string_view> texts, Around around) {
    std::vector<std::vector<int32_t>> ids(texts.size());
    each(texts.size(), [&](Encoder& encoder, size_t i) {
        std::vector<int32_t> own;  // a vector of this thread, as elements of `ids` share cache lines
        try {
            own.reserve(texts[i].size() / 3);
            encoder.encode(texts[i], around, own);
            ids[i] = std::move(own);
        } catch (const Error& error) {
            throw Error(fmt::format("text {}: {}", i, error.what()), error.fault());
        }
    });
    return ids;
}

EncodeCounts Encoders::counts() const {
    EncodeCounts all;
    for (const auto& encoder : encoders_) all += encoder->counts();
    return all;
}

}  // namespace orrery::tokenizer
