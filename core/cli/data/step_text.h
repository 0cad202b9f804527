#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "run/data/data.h"
#include "tokenizer/tokenizer.h"

namespace orrery {

/// What ids are printed as.
struct TextOfIds {
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer;  ///< nullptr: none
    bool bytes = false;                                     ///< an id is a byte

    /// Text, or ids with spaces between. Throws Error at an id that the tokenizer has not.
    std::string of(const std::vector<int32_t>& ids) const;
    const char* unit() const { return tokenizer || bytes ? "bytes of text" : "characters of ids"; }
};

/// Samples [first, first + count) of the training, in their order, each a line that says where it lies and how long
/// its text is, then its text; of arrays without tokens that line alone. Read as InputFeed reads them. `put` gets one
/// sample at a time.
void print_samples(const Dataset& data, int64_t first, int64_t count, const TextOfIds& text,
                   const std::function<void(const std::string&)>& put);

}  // namespace orrery
