#pragma once
#include <cstdint>
#include <vector>

namespace orrery::tokenizer {

/// Hash table from pairs of token ids or characters to a merge's rank and id; open addressing, optimized for lookups.
class PairTable {
public:
    struct Entry {
        uint64_t key = empty;
        int32_t rank = 0, id = 0;
    };

    void reserve(size_t pairs) {
        size_t slots = 16;
        while (slots < 2 * pairs) slots *= 2;
        std::vector<Entry> old(slots);
        old.swap(entries_);
        for (const Entry& entry : old)
            if (entry.key != empty) slot(entry.key) = entry;
    }
    /// Adds an entry; replaces the entry of an equal pair.
    void put(int32_t left, int32_t right, int32_t rank, int32_t id) {
        if (2 * (count_ + 1) > entries_.size()) reserve(count_ + 1 + count_ / 2);
        Entry& entry = slot(key_of(left, right));
        count_ += entry.key == empty;
        entry = {key_of(left, right), rank, id};
    }
    const Entry* find(int32_t left, int32_t right) const {
        if (entries_.empty()) return nullptr;
        const uint64_t key = key_of(left, right);
        const size_t mask = entries_.size() - 1;
        for (size_t at = hash(key) & mask;; at = (at + 1) & mask) {
            if (entries_[at].key == key) return &entries_[at];
            if (entries_[at].key == empty) return nullptr;
        }
    }

private:
    static constexpr uint64_t empty = ~uint64_t{0};

    static uint64_t key_of(int32_t left, int32_t right) {
        return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    }
    static uint64_t hash(uint64_t key) {
        key *= 0x9e3779b97f4a7c15u;
        return key ^ key >> 32;
    }
    Entry& slot(uint64_t key) {
        const size_t mask = entries_.size() - 1;
        size_t at = hash(key) & mask;
        while (entries_[at].key != empty && entries_[at].key != key) at = (at + 1) & mask;
        return entries_[at];
    }

    std::vector<Entry> entries_;
    size_t count_ = 0;
};

}  // namespace orrery::tokenizer
