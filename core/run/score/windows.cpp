#include "run/score/windows.h"

#include <algorithm>
#include <cassert>

namespace orrery {

// Without overlap the last place of a window predicts what the next one begins with.
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
