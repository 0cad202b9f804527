#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::tokenizer {

/// The ids of words that one thread has encoded. Cleared when it is full (65,536 words or 4 MiB of words).
class WordCache {
public:
    struct Ids {
        const int32_t* first = nullptr;  ///< ids of the word, valid until the next `put`; nullptr: it is not cached
        size_t count = 0;
    };

    WordCache();

    static uint64_t hash(std::string_view word);
    Ids find(std::string_view word, uint64_t hash) const {
        for (size_t at = hash & (slots - 1);; at = (at + 1) & (slots - 1)) {
            const Entry& entry = entries_[at];
            if (entry.count == 0) return {};
            if (entry.hash == hash && entry.length == word.size() &&
                std::memcmp(letters_.data() + entry.letters, word.data(), word.size()) == 0)
                return {entry.count <= inside ? entry.ids : ids_.data() + entry.ids[0], entry.count};
        }
    }
    /// Adds a word that is not cached yet. Words over 256 bytes, and words without ids, are not cached.
    void put(std::string_view word, uint64_t hash, const std::vector<int32_t>& ids);

private:
    static constexpr size_t slots = 1 << 17, inside = 3;
    struct Entry {
        uint64_t hash = 0;
        uint32_t letters = 0;
        uint16_t length = 0, count = 0;
        int32_t ids[inside] = {};  ///< the word's ids; for more than `inside`, ids[0] is the index of the first in ids_
    };

    std::vector<Entry> entries_;
    std::string letters_;
    std::vector<int32_t> ids_;
    size_t words_ = 0;
};

}  // namespace orrery::tokenizer
