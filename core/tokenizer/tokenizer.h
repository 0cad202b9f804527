#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe/model.h"
#include "tokenizer/decode.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretokenize.h"

namespace orrery::tokenizer {

/// A tokenizer.json of kind BPE: text to ids and back, like the Python package `tokenizers` 0.23. Immutable: threads
/// share it, each with an `Encoder` of its own.
class Tokenizer {
public:
    /// Loads the file, or tokenizer.json of a folder. Throws Error, naming file and key, for parts that are missing,
    /// malformed or unsupported.
    static std::shared_ptr<const Tokenizer> load(const std::string& path);
    Tokenizer(const Json& json, const std::string& file);
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;

    /// Largest id plus 1: the number of rows that a model's embedding needs.
    int64_t vocabulary() const { return static_cast<int64_t>(names_.size()); }
    std::optional<int32_t> id_of(std::string_view token) const;
    /// Returns the token as tokenizer.json has it; "" for an id that the file lacks.
    const std::string& token_of(int64_t id) const;
    bool has(int64_t id) const;
    bool is_special(int64_t id) const;

    /// Decodes ids to text. `skip_special` leaves special tokens out. Throws Error for an id that the file lacks.
    std::string decode(std::span<const int32_t> ids, bool skip_special = false,
                       Unreadable bytes = Unreadable::replaced) const;

    // The functions below are for Encoder and TextStream.
    const Normalizer& normalizer() const { return normalizer_; }
    const PreTokenizer& pre_tokenizer() const { return pre_tokenizer_; }
    const BpeModel& model() const { return *model_; }
    const AddedTokens& added(bool normalized) const { return normalized ? normalized_ : raw_; }
    const std::vector<DecodeStep>& decoders() const { return decoders_; }
    /// Returns the text that decoding starts from for an id; for an added token, its normalized form.
    const std::string& spelling(int64_t id) const;
    /// Whether decoding with `skip_special` leaves out tokens of this spelling.
    bool skipped(std::string_view spelling) const;
    /// Ids that the template puts before and after a text.
    const std::vector<int32_t>& before() const { return before_; }
    const std::vector<int32_t>& behind() const { return behind_; }

private:
    void read_added(const Field& field);
    void read_template(const Field& field);
    void read_post_processor(const Field& field, int& templates);
    void fill_names();

    Normalizer normalizer_;
    PreTokenizer pre_tokenizer_;
    std::unique_ptr<BpeModel> model_;
    std::vector<AddedToken> tokens_;
    std::unordered_map<std::string_view, const AddedToken*> by_content_;
    std::vector<const AddedToken*> by_id_;  ///< added tokens by id [vocabulary]; nullptr for the model's own tokens
    AddedTokens raw_, normalized_;
    std::vector<DecodeStep> decoders_;
    std::vector<int32_t> before_, behind_;
    std::vector<const std::string*> names_;  ///< tokens' texts by id [vocabulary]; nullptr for unused ids
};

/// Decodes ids one by one, in whole characters: returned text never changes, whatever ids follow.
class TextStream {
public:
    explicit TextStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false);
    ~TextStream();
    TextStream(const TextStream&) = delete;
    TextStream& operator=(const TextStream&) = delete;

    /// Returns the text that this id completes, often "". Throws Error for an id that the file lacks.
    std::string put(int32_t id);
    /// Returns the rest of the text. put() may not be called after it.
    std::string finish();

private:
    std::shared_ptr<const Tokenizer> tokenizer_;
    bool skip_special_;
    std::string out_;
    std::unique_ptr<DecodeStage> stages_;
};

}  // namespace orrery::tokenizer
