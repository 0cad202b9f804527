#pragma once
#include <memory>
#include <optional>
#include <string>

#include "orrery/config.h"
#include "tokenizer/tokenizer.h"

namespace orrery {

/// The tokenizer of a run.
struct ChosenTokenizer {
    std::string path;  ///< a folder or a tokenizer.json
    Origin asked;      ///< the configuration key that names it
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
};

/// Chooses and loads the run's tokenizer: data.tokenizer; if that is not set, tokenizer.json in the folder of
/// checkpoint.load; if there is none, the copy in the run's folder. Returns nullopt if there is none of these. Sets
/// data.vocab unless it is set. Throws Error at the key if the tokenizer cannot be read.
std::optional<ChosenTokenizer> choose_tokenizer(Config& config);

/// Throws Error if the tokenizer has more ids than the model's embedding has `rows`. 0: not checked.
void require_rows(const ChosenTokenizer& chosen, int64_t rows);

/// Throws Error if the run's folder has a copy of another tokenizer.
void require_kept(const ChosenTokenizer& chosen, const std::string& folder);

/// Copies the tokenizer, and the files next to it that transformers' AutoTokenizer reads, to FOLDER/tokenizer. The copy
/// appears complete or not at all. Does not replace a copy; throws as require_kept if that is of another tokenizer.
void keep_tokenizer(const ChosenTokenizer& chosen, const std::string& folder);

}  // namespace orrery
