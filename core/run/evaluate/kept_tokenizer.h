#pragma once
#include <memory>
#include <optional>
#include <string>

#include "orrery/config.h"
#include "tokenizer/tokenizer.h"

namespace orrery {

struct ChosenTokenizer {
    std::string path;  ///< path of a folder or of a tokenizer.json
    Origin asked;      ///< the configuration key that names the tokenizer
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
};

/// Chooses and loads the run's tokenizer: data.tokenizer; if not set, tokenizer.json in the folder of checkpoint.load;
/// otherwise, or if data.tokenizer does not exist, the copy in the run's folder. Returns nullopt if there is none. Sets
/// data.vocab unless it is set. Throws Error at the key if the tokenizer cannot be read.
std::optional<ChosenTokenizer> choose_tokenizer(Config& config);

/// Throws Error if the tokenizer has more ids than `rows`, the rows of the model's embedding; 0: not checked.
void require_rows(const ChosenTokenizer& chosen, int64_t rows);

/// Throws Error if the run's folder has a copy of another tokenizer.
void require_kept(const ChosenTokenizer& chosen, const std::string& folder);

/// Copies the tokenizer, and the files next to it that transformers' AutoTokenizer reads, to FOLDER/tokenizer. The copy
/// appears complete or not at all. Does not replace a copy; throws Error if there is a copy of another tokenizer.
void keep_tokenizer(const ChosenTokenizer& chosen, const std::string& folder);

}  // namespace orrery
