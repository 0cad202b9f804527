#pragma once
#include <string>
#include <vector>

#include "published/rows.h"

namespace orrery::published {

/// Whose software ran: it decides a few constants. One rule for every row, seen or not (`software_of`).
enum class Software { eager, compiled, megatron, unfused, eight_bit };
std::string_view name_of(Software software);

/// The mixture of experts that takes the place of each feed-forward layer. `count` 0: there is none.
struct Experts {
    int64_t count = 0, top_k = 0;
    int64_t mlp = 0, head_dim = 0;  ///< width of an expert, and of a head; 0: the column ffn, and hidden over heads
    double capacity = 1;            ///< slots over the even share; 1 where tokens are dropped at it or loads are even
};

/// What the prose columns say, by a closed list of words, and defaults where a word is missing.
struct Words {
    Software software = Software::eager;
    bool sequence = false;         ///< tp also splits the sequence between blocks
    bool chunks_tp = false;        ///< tp's collectives run in chunks beside their products
    bool separate = false;         ///< attention as separate ops
    bool interleaves = true;       ///< the pipeline's chunks may be more than one
    bool gather_f32 = false;       ///< params are gathered in f32 and cast where they are used
    bool reduce_bf16 = false;      ///< gradients are reduced in bf16
    bool overlaps_data = true;     ///< gradients and params go beside kernels
    bool blocks_messages = false;  ///< kernels wait for what a pipeline sends, too
    bool all_reduces = false;      ///< gradients, though optimizer states are split
    bool adds_apart = false;       ///< gradients of micro-batches are added by launches of their own
    bool ethernet = false;         ///< NICs are RoCE
    std::string activation = "gelu", norm = "layernorm", positions = "learned";
    bool bias = true, tied = true;
    int zero = 0;
    bool replicates = false;  ///< zero splits within a node and repeats over nodes
    std::string recompute = "none";
    bool recompute_stated = true;
    Experts experts;
};

/// The words of a row. Reads no number but those that the columns of configuration hold, and those of experts.
Words words_of(const Row& row);

/// The closed list, for the README and its test: word, column group, what it sets.
struct Word {
    std::string_view text, sets;
};
const std::vector<Word>& word_list();
/// The numbers of experts, which no column has: the text around a number "#", and what it says.
const std::vector<Word>& number_list();
/// The defaults, one line each: what, value, where.
struct Default {
    std::string_view what, value, where;
};
const std::vector<Default>& default_list();

}  // namespace orrery::published
