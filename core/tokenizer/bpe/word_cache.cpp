#include "tokenizer/bpe/word_cache.h"

#include <algorithm>

namespace orrery::tokenizer {
namespace {

uint64_t load(const char* at, size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, at, bytes);
    return value;
}

uint64_t mix(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

WordCache::WordCache() : entries_(slots) {}

uint64_t WordCache::hash(std::string_view word) {
    constexpr uint64_t one = 0xa0761d6478bd642fu, two = 0xe7037ed1a0b428dbu;
    const char* at = word.data();
    size_t left = word.size();
    uint64_t state = mix(left ^ one, two);
    for (; left > 8; at += 8, left -= 8) state = mix(state ^ load(at, 8), one);
    // Two loads of constant size, which may overlap, are faster than a memcpy of `left` bytes.
    const uint64_t last = left == 8   ? load(at, 8)
                          : left >= 4 ? load(at, 4) | load(at + left - 4, 4) << 32
                          : left > 0  ? static_cast<uint64_t>(static_cast<unsigned char>(at[0])) |
                                           static_cast<uint64_t>(static_cast<unsigned char>(at[left / 2])) << 8 |
                                           static_cast<uint64_t>(static_cast<unsigned char>(at[left - 1])) << 16
                                     : 0;
    return mix(state ^ last, two);
}

void WordCache::put(std::string_view word, uint64_t hash, const std::vector<int32_t>& ids) {
    constexpr size_t longest = 256, most_words = slots / 2, most_letters = 4 << 20;
    if (word.size() > longest || ids.empty() || ids.size() > UINT16_MAX) return;
    if (words_ == most_words || letters_.size() > most_letters) {
        std::fill(entries_.begin(), entries_.end(), Entry{});
        letters_.clear();
        ids_.clear();
        words_ = 0;
    }
    size_t at = hash & (slots - 1);
    while (entries_[at].count != 0) at = (at + 1) & (slots - 1);
    Entry& entry = entries_[at];
    entry.hash = hash;
    entry.letters = static_cast<uint32_t>(letters_.size());
    entry.length = static_cast<uint16_t>(word.size());
    entry.count = static_cast<uint16_t>(ids.size());
    letters_ += word;
    ++words_;
    if (ids.size() <= inside) {
        std::copy(ids.begin(), ids.end(), entry.ids);
    } else {
        entry.ids[0] = static_cast<int32_t>(ids_.size());
        ids_.insert(ids_.end(), ids.begin(), ids.end());
    }
}

}  // namespace orrery::tokenizer
