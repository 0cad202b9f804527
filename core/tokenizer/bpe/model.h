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

/// Byte pair encoding as a file has it: vocabulary, merges by rank, and what is done with characters that it lacks.
class BpeModel {
public:
    /// Throws Error at the key of what is not there, twice there, or of another kind of model.
    explicit BpeModel(const Field& field);

    std::optional<int32_t> id_of(std::string_view token) const;
    /// By id, "" where there is none. [greatest id + 1]
    const std::vector<std::string>& tokens() const { return tokens_; }
    bool has(int32_t id) const {
        return id >= 0 && static_cast<size_t>(id) < there_.size() && there_[static_cast<size_t>(id)];
    }
    int64_t count() const { return static_cast<int64_t>(ids_.size()); }

    /// The merge of two neighbours, nullptr for none.
    const PairTable::Entry* merge_of(int32_t left, int32_t right) const { return merges_.find(left, right); }

    /// Words are raw bytes, for which the alphabet of ByteLevel stands. False, and nothing is changed, when the
    /// vocabulary lacks one of its characters.
    bool take_bytes();
    bool in_bytes() const { return in_bytes_; }
    const int32_t* byte_ids() const { return byte_ids_.data(); }

    /// The id of a word that is a token as it is, where merges are ignored for such; -1 otherwise.
    int32_t whole_word(std::string_view word) const;
    /// A word's characters as ids, before any merge; with bytes instead of characters, or the unknown token, where
    /// the vocabulary lacks one. `lost`: counts characters for which there is neither.
    void characters(std::string_view word, std::vector<int32_t>& ids, int64_t& lost) const;

    /// Whether a word may be cut between characters that no merge joins.
    bool can_cut() const { return can_cut_; }
    /// Whether words may be cut between these characters, with the same ids.
    bool cuts(char32_t left, char32_t right) const;

private:
    void read_vocabulary(const Field& field);
    void read_merges(const Field& field);
    /// `at`: where it stands, for what is refused.
    void add_merge(const std::function<Field()>& at, const std::string& left, const std::string& right, int32_t rank);
    void find_joins();
    void read_fallback();
    int32_t character_id(char32_t character) const;
    bool fall_back(std::string_view symbol, std::vector<int32_t>& ids) const;

    std::unordered_map<std::string_view, int32_t> ids_;
    std::vector<std::string> tokens_;
    std::vector<bool> there_;
    PairTable merges_;
    std::vector<std::pair<int32_t, int32_t>> merged_;  ///< pairs, for find_joins
    std::string unknown_, prefix_, suffix_;
    bool has_unknown_ = false, fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;

    std::unordered_map<char32_t, int32_t> character_ids_;
    std::vector<int32_t> low_ids_;                         ///< of characters below 0x100 [256]
    std::vector<int32_t> fallback_;                        ///< of "<0x00>" ... [256], -1 for none
    std::vector<int32_t> byte_ids_;                        ///< [256]
    std::unordered_map<std::string, int32_t> byte_words_;  ///< tokens as raw bytes, where merges are ignored
    PairTable joins_;                                      ///< characters that are neighbours in a token
    std::vector<uint64_t> low_joins_;  ///< of those below 0x80 and the space of sentencepiece [129 * 3]
    bool in_bytes_ = false, can_cut_ = false;
};

}  // namespace orrery::tokenizer
