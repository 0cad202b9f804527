#pragma once
#include <string>
#include <vector>

#include "published/rows.h"
#include "sim/software/run.h"

namespace orrery::published {

/// The mixture of experts that takes the place of each feed-forward layer. `count` 0: there is none.
struct Experts {
    int64_t count = 0, top_k = 0;
    int64_t mlp = 0, head_dim = 0;  ///< width of an expert, and of a head; 0: the column ffn, and hidden over heads
    double capacity = 1;            ///< slots over the even share; 1 where tokens are dropped at it or loads are even
};

/// What the prose columns say, by a closed list of words, and where a word is missing what the row's software does by
/// default (configs/software).
struct Words : SoftwareRun {
    bool interleaves = true;  ///< the pipeline's chunks may be more than one
    bool ethernet = false;    ///< NICs are RoCE
    std::string activation = "gelu", norm = "layernorm", positions = "learned";
    bool bias = true, tied = true;
    bool replicates = false;  ///< zero splits within a node and repeats over nodes
    std::string recompute = "none";
    bool recompute_stated = true;
    bool share_stated = true;  ///< of the blocks that are recomputed
    Experts experts;
};

/// The words of a row. Reads no number but those that the columns of configuration hold, and those of experts. Throws
/// Error where the files of configs/software cannot be read.
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
