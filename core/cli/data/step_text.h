#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layout/token_order.h"
#include "run/data/data.h"
#include "tokenizer/tokenizer.h"

namespace orrery {

struct TextOfIds {
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer;  ///< nullptr: ids are printed as numbers or bytes
    bool bytes = false;                                     ///< each id is a byte of text

    /// Returns text, or numbers separated by spaces. Throws Error at an id that the tokenizer does not have.
    std::string of(const std::vector<int32_t>& ids) const;
    const char* unit() const { return tokenizer || bytes ? "bytes of text" : "characters of ids"; }
};

/// Prints the training samples [first, first + count) in the order of their batch. Each has a line with its location
/// and the length of its text, then the text, unless it has no token ids; if it has an array "documents", each document
/// has a line and its text. The text is in natural order; for another order the line adds the busiest rank's
/// query-key pairs relative to the mean. `put` receives all that is printed of one sample.
void print_samples(const Dataset& data, int64_t first, int64_t count, const TextOfIds& text, const TokenOrder& order,
                   const std::function<void(const std::string&)>& put);

}  // namespace orrery
