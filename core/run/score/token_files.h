#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "orrery/data.h"

namespace orrery {

/// Whether a file is one of token ids, by the end of its name: .bin.
bool is_token_file(const std::string& path);

/// The ids of a text, and those that are no targets.
struct ScoredIds {
    std::vector<int32_t> ids;
    std::vector<bool> ignored;  ///< by token; empty: none
};

/// All ids of a file, as data/tokens reads it, with its headers, index and mask. `source`: makes one that cuts the file
/// in samples of so many tokens. `ids`: those allowed are below it. Throws Error where it does, and where there are
/// more than `most` tokens.
ScoredIds read_token_file(const std::function<std::shared_ptr<DataSource>(int64_t sequence)>& source, int64_t ids,
                          int64_t most);

}  // namespace orrery
