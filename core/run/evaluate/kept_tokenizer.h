#pragma once
#include <memory>
#include <optional>
#include <string>

#include "orrery/config.h"
#include "tokenizer/tokenizer.h"

namespace orrery {

/// The tokenizer of a run, and what asked for it.
struct ChosenTokenizer {
    std::string path;  ///< a folder or a tokenizer.json
    Origin asked;
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
};

/// [data] tokenizer; where that is not set, tokenizer.json in the folder of checkpoint.load, if there is one; where
/// neither is there, the copy in the run's folder. data.vocab follows from it unless it is set. Throws Error at the key
/// for a tokenizer that cannot be read.
std::optional<ChosenTokenizer> choose_tokenizer(Config& config);

/// Throws Error with both numbers where the tokenizer has ids beyond the model's `rows`; 0: the model has none.
void require_rows(const ChosenTokenizer& chosen, int64_t rows);

/// Throws Error where the run's folder holds a copy of another tokenizer.
void require_kept(const ChosenTokenizer& chosen, const std::string& folder);

/// Copies the tokenizer's files, and what lies beside it for transformers' AutoTokenizer, to FOLDER/tokenizer: all or
/// nothing. One that is there stays; throws Error as require_kept does.
void keep_tokenizer(const ChosenTokenizer& chosen, const std::string& folder);

}  // namespace orrery
