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

/// A tokenizer.json of kind BPE. Not changed once it is there: threads share it, each with an `Encoder` of its own.
/// Text to ids and back as the Python package `tokenizers` 0.23 does it.
class Tokenizer {
public:
    /// The file, or that of the name tokenizer.json in a folder. Throws Error, naming file and key, for what is not
    /// there, broken, or would not be done as the reference does it.
    static std::shared_ptr<const Tokenizer> load(const std::string& path);
    Tokenizer(const Json& json, const std::string& file);
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;

    /// The greatest id and 1: how many rows a model needs.
    int64_t vocabulary() const { return static_cast<int64_t>(names_.size()); }
    std::optional<int32_t> id_of(std::string_view token) const;
    /// As the file has it, "" for an id that it has not.
    const std::string& token_of(int64_t id) const;
    bool has(int64_t id) const;
    bool is_special(int64_t id) const;

    /// `skip_special`: without special tokens. Throws Error for an id that the file has not.
    std::string decode(std::span<const int32_t> ids, bool skip_special = false,
                       Unreadable bytes = Unreadable::replaced) const;

    // For Encoder and TextStream.
    const Normalizer& normalizer() const { return normalizer_; }
    const PreTokenizer& pre_tokenizer() const { return pre_tokenizer_; }
    const BpeModel& model() const { return *model_; }
    const AddedTokens& added(bool normalized) const { return normalized ? normalized_ : raw_; }
    const std::vector<DecodeStep>& decoders() const { return decoders_; }
    /// What decoding begins with; an added token is its normalized form.
    const std::string& spelling(int64_t id) const;
    /// Whether a token of this spelling is left out where special ones are.
    bool skipped(std::string_view spelling) const;
    /// Ids around a text's own, [before, behind].
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
    std::vector<const AddedToken*> by_id_;  ///< [vocabulary], nullptr for the model's own
    AddedTokens raw_, normalized_;
    std::vector<DecodeStep> decoders_;
    std::vector<int32_t> before_, behind_;
    std::vector<const std::string*> names_;  ///< [vocabulary], nullptr where there is none
};

/// Text of ids that come one by one, in whole characters: what was given is part of the whole text, whatever follows.
class TextStream {
public:
    explicit TextStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special = false);
    ~TextStream();
    TextStream(const TextStream&) = delete;
    TextStream& operator=(const TextStream&) = delete;

    /// What this id completes, often "". Throws Error for an id that the file has not.
    std::string put(int32_t id);
    /// What was kept back; there is no more.
    std::string finish();

private:
    std::shared_ptr<const Tokenizer> tokenizer_;
    bool skip_special_;
    std::string out_;
    std::unique_ptr<DecodeStage> stages_;
};

}  // namespace orrery::tokenizer
