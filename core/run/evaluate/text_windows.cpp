#include "run/evaluate/text_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/text.h"

namespace orrery {
namespace {

constexpr int64_t piece = 1 << 16;  ///< tokens per read
enum : size_t { tokens_array = 0, targets_array = 1 };

}  // namespace

bool is_token_file(const std::string& path) { return path.ends_with(".bin"); }

ScoredIds read_token_file(const std::function<std::shared_ptr<DataSource>(int64_t sequence)>& source, int64_t ids,
                          int64_t most) {
    const auto pairs = source(1);  // each sample is a token and its target, so there is one sample less than tokens
    pairs->open(ids);
    const int64_t all = pairs->samples() + 1;
    if (all > most)
        throw Error(fmt::format("{} has {} tokens, the maximum to evaluate is {}\n  split it into several files",
                                pairs->place(), count_text(all), count_text(most)));
    const auto whole = source(all - 1);
    whole->open(ids);
    const DataSample sample;
    ScoredIds read;
    read.ids.resize(static_cast<size_t>(all));
    std::vector<int32_t> targets(static_cast<size_t>(std::min(all - 1, piece)));
    for (int64_t from = 0; from < all - 1; from += piece) {
        const int64_t count = std::min(piece, all - 1 - from);
        whole->read(tokens_array, sample, {from}, {read.ids.data() + from, DType::i32, {count}});
        whole->read(targets_array, sample, {from}, {targets.data(), DType::i32, {count}});
        for (int64_t i = 0; i < count; ++i) {
            if (targets[static_cast<size_t>(i)] >= 0) continue;
            read.ignored.resize(static_cast<size_t>(all));
            read.ignored[static_cast<size_t>(from + i + 1)] = true;
        }
        // The file's last token is only a target; if a mask ignores it, its id is unknown (-1), but it is never used.
        read.ids[static_cast<size_t>(from + count)] = std::max(0, targets[static_cast<size_t>(count - 1)]);
    }
    return read;
}

// With stride == size, windows reach one token further: the last position predicts the first token of the next window.
TextWindows::TextWindows(int64_t tokens, int64_t size, int64_t stride)
    : tokens_(tokens), stride_(stride), reach_(stride == size ? size + 1 : size) {
    assert(stride >= 1 && stride <= size);
    if (tokens > 1) count_ = 1 + std::max<int64_t>(0, tokens - reach_ + stride - 1) / stride;
}

TextWindow TextWindows::operator[](int64_t index) const {
    assert(index >= 0 && index < count_);
    const int64_t begin = index * stride_;
    return {begin, index == 0 ? 1 : begin - stride_ + reach_, std::min(begin + reach_, tokens_)};
}

void fill_row(std::span<const int32_t> text, const TextWindow& window, std::span<int32_t> tokens,
              std::span<int32_t> targets) {
    const auto all = static_cast<int64_t>(text.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
        const int64_t at = window.begin + static_cast<int64_t>(i);
        tokens[i] = at < all ? text[static_cast<size_t>(at)] : 0;
        targets[i] = at + 1 >= window.from && at + 1 < window.to ? text[static_cast<size_t>(at + 1)] : -1;
    }
}

void ignore(const std::vector<bool>& ignored, const TextWindow& window, std::span<int32_t> targets) {
    if (ignored.empty()) return;
    for (int64_t token = window.from; token < window.to; ++token)
        if (ignored[static_cast<size_t>(token)]) targets[static_cast<size_t>(token - window.begin - 1)] = -1;
}

int64_t counted(const std::vector<bool>& ignored, const TextWindow& window) {
    if (ignored.empty()) return window.to - window.from;
    return std::count(ignored.begin() + window.from, ignored.begin() + window.to, false);
}

}  // namespace orrery
