#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/bpe/pair_table.h"
#include "tokenizer/fields.h"

namespace orrery::tokenizer {

/// The BPE model of a tokenizer.json: vocabulary, merges by rank, replacements for characters not in the vocabulary.
class BpeModel {
public:
    /// Reads a model. Throws Error at a key that is missing or duplicate, and for a model that is not BPE.
    explicit BpeModel(const Field& field);

    std::optional<int32_t> id_of(std::string_view token) const;
    /// Returns the tokens by id, "" for unused ids. [largest id + 1]
    const std::vector<std::string>& tokens() const { return tokens_; }
    bool has(int32_t id) const {
        return id >= 0 && static_cast<size_t>(id) < there_.size() && there_[static_cast<size_t>(id)];
    }
    int64_t count() const { return static_cast<int64_t>(ids_.size()); }

    /// Returns the merge of two adjacent tokens; nullptr when there is none.
    const PairTable::Entry* merge_of(int32_t left, int32_t right) const { return merges_.find(left, right); }

    /// Makes the model take words as raw bytes instead of characters of ByteLevel's alphabet, one for each byte.
    /// Returns false, without a change, when the vocabulary lacks a character of the alphabet.
    bool take_bytes();
    bool in_bytes() const { return in_bytes_; }
    const int32_t* byte_ids() const { return byte_ids_.data(); }

    /// Returns the id of a word that is itself a token, if ignore_merges lets it skip merging; otherwise -1.
    int32_t whole_word(std::string_view word) const;
    /// Appends the ids of a word's characters, before any merge. A character that the vocabulary lacks is replaced by
    /// its bytes or by the unknown token; `lost` is incremented when neither exists.
    void characters(std::string_view word, std::vector<int32_t>& ids, int64_t& lost) const;

    /// Whether words may be split where no merge joins characters, with the same ids.
    bool can_cut() const { return can_cut_; }
    /// Whether splitting a word between two adjacent characters leaves the word's ids unchanged.
    bool cuts(char32_t left, char32_t right) const;

private:
    void read_vocabulary(const Field& field);
    void read_merges(const Field& field);
    /// Adds the merge of two tokens. `at`: returns the merge's place in the file, for messages.
    void add_merge(const std::function<Field()>& at, const std::string& left, const std::string& right, int32_t rank);
    void find_joins();
    void read_fallback();
    int32_t character_id(char32_t character) const;
    bool fall_back(std::string_view symbol, std::vector<int32_t>& ids) const;

    std::unordered_map<std::string_view, int32_t> ids_;
    std::vector<std::string> tokens_;
    std::vector<bool> there_;
    PairTable merges_;
    std::vector<std::pair<int32_t, int32_t>> merged_;  ///< the two ids of each merge, until find_joins() is done
    std::string unknown_, prefix_, suffix_;
    bool has_unknown_ = false, fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;

    std::unordered_map<char32_t, int32_t> character_ids_;
    std::vector<int32_t> low_ids_;   ///< ids of characters below 0x100 [256]; -1: none
    std::vector<int32_t> fallback_;  ///< ids of "<0x00>" ... [256]; -1: none
    std::vector<int32_t> byte_ids_;  ///< ids of the tokens of single bytes [256]
    /// ids of tokens by raw bytes, when words that are tokens are exempt from merges (ignore_merges)
    std::unordered_map<std::string, int32_t> byte_words_;
    PairTable joins_;  ///< pairs of characters that are adjacent in a merged token
    /// the part of joins_ for characters below 0x80 and sentencepiece's space, as a bit matrix [129 * 3 words]
    std::vector<uint64_t> low_joins_;
    bool in_bytes_ = false, can_cut_ = false;
};

}  // namespace orrery::tokenizer
