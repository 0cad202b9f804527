#pragma once
#include <cstdint>
#include <vector>

#include "tokenizer/bpe/model.h"

namespace orrery::tokenizer {

/// Joins neighbours of a word in the order of byte pair encoding: the merge of the least rank first, the leftmost of
/// equals. Keeps what it works in; one a thread.
class Merger {
public:
    /// Replaces the ids of a word's characters by those of its tokens. n * n/64 steps for short words, n * log(n) for
    /// long ones.
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

    std::vector<int32_t> ranks_, joined_;  ///< of each with its right neighbour, for short words
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
};

}  // namespace orrery::tokenizer
