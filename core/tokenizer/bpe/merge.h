#pragma once
#include <cstdint>
#include <vector>

#include "tokenizer/bpe/model.h"

namespace orrery::tokenizer {

/// Byte pair encoding of a word: applies the merge of the lowest rank to adjacent tokens until none is left; of equal
/// ranks, the leftmost merge first. Merges by rank "l o", "lo w", "e r":
///
///     l o w e r  ->  lo w e r  ->  low e r  ->  low er
///
/// Reuses its memory, so each thread needs its own.
class Merger {
public:
    /// Replaces the ids of a word's characters by those of its tokens. O(n^2) for short words, otherwise O(n log n).
    void merge(const BpeModel& model, std::vector<int32_t>& ids);

private:
    struct Symbol {
        int32_t id = 0;
        int32_t before = -1, after = -1;
        bool gone = false;
    };
    struct Candidate {
        int32_t rank = 0, at = 0, id = 0;
        bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
    };

    void merge_short(const BpeModel& model, std::vector<int32_t>& ids);
    void merge_long(const BpeModel& model, std::vector<int32_t>& ids);
    void offer(const BpeModel& model, int32_t at);

    /// by token, for short words: rank and id of the token's merge with its right neighbour
    std::vector<int32_t> ranks_, joined_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
};

}  // namespace orrery::tokenizer
