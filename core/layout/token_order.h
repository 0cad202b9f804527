#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orrery/mesh.h"
#include "orrery/program.h"

namespace orrery {

/// The order of a row's tokens in inputs with a dim `seq`, which an axis splits in contiguous parts: its members get
/// equal work in causal attention if the feed fills rows in this order. A strategy asks for it by
/// `program.edge(axis, std::nullopt, "order", "zigzag", origin)`.
struct TokenOrder {
    enum class Kind : uint8_t {
        natural,   ///< as in the text
        zigzag,    ///< of 2 P equal chunks member p gets p and 2 P - 1 - p
        balanced,  ///< blocks of tokens, by decreasing number of pairs, go to the member with the fewest pairs
    };
    Kind kind = Kind::natural;
    std::string axis;     ///< "" if natural
    int64_t members = 1;  ///< P, the size of the axis

    bool natural() const { return kind == Kind::natural; }
    std::string text() const;  ///< "zigzag over cp=2"; "natural"
};

/// The order that a strategy asks for; natural if none does, or the axis has one rank.
TokenOrder token_order(const Program& program, const Mesh& mesh);

/// Tokens that follow each other in a row: `count` of them from place `first` on.
struct TokenRun {
    int64_t first = 0, count = 0;
    bool operator==(const TokenRun&) const = default;
};

/// The places of a row of `length` tokens in an order. `documents`: number of the document of each place, -1 for
/// padding; empty: one document. Balanced: a row is cut into blocks of min(128, length / 4 P) tokens (or the next
/// smaller size that divides length / P); those with the largest number of pairs of query and key are dealt first,
/// each to the member with the fewest pairs that has not length / P tokens yet; a member's blocks are in the order of
/// their places.
/// O(length + P length / 128).
std::vector<TokenRun> token_runs(const TokenOrder& order, int64_t length, std::span<const int32_t> documents);

/// Block size of an order in tokens: it permutes whole blocks of a row of `length` tokens.
int64_t block_of_tokens(const TokenOrder& order, int64_t length);

/// Calls visit(place, count, at) for the parts of runs that make up the tokens [begin, begin + count) of the ordered
/// row: `count` tokens from `place` on are those from `begin` + `at` on.
template <class Visit>
void each_run(std::span<const TokenRun> runs, int64_t begin, int64_t count, const Visit& visit) {
    int64_t first = 0;  // index of the run's first token in the ordered row
    for (const TokenRun& run : runs) {
        const int64_t from = std::max(first, begin), to = std::min(first + run.count, begin + count);
        if (from < to) visit(run.first + from - first, to - from, from - begin);
        first += run.count;
    }
}

/// Pairs of query and key that the queries of each of `members` equal parts of an ordered row see in causal attention.
std::vector<int64_t> pairs_of_members(std::span<const TokenRun> runs, int64_t members,
                                      std::span<const int32_t> documents);

/// The largest over the mean of pairs_of_members; 1 without any pair.
double largest_share(std::span<const TokenRun> runs, int64_t members, std::span<const int32_t> documents);

/// "the busiest rank has 1.500 times the mean number of query-key pairs (natural: 1.875)": how evenly an order spreads
/// the work on a row of `length` tokens over ranks, compared with the natural order.
std::string work_text(const TokenOrder& order, int64_t length, std::span<const int32_t> documents);

/// Throws Error, naming the op, if the forward pass does not give the same result for tokens in another order: an op
/// other than attention mixes positions, or depends on the index of a token (a causal mask without positions, rope
/// without them, a draw without places), or combines tokens with an array in natural order (positions by index).
void check_token_order(const Program& program, const Mesh& mesh);

}  // namespace orrery
