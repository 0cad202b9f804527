#include "tokenizer/bpe/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "tokenizer/characters.h"

namespace orrery::tokenizer {
namespace {

constexpr int64_t most_ids = 1 << 26;
constexpr char32_t sentencepiece_space = 0x2581;
constexpr size_t low_count = 129;

/// Returns a character's row in the bit matrix low_joins_; low_count: the matrix does not have the character.
size_t low_index(char32_t character) {
    if (character < 0x80) return character;
    return character == sentencepiece_space ? 0x80 : low_count;
}

}  // namespace

BpeModel::BpeModel(const Field& field) {
    // A tokenizer.json from before version 0.9 has no type of model.
    if (!field.has("type") ? !field.has("merges") : field.at("type").text() != "BPE") {
        if (field.has("type")) field.refuse_type("model: BPE");
        field.refuse("has neither type nor merges: it is not BPE, the only supported tokenizer model");
    }
    field.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (field.has("dropout")) {
        const Field dropout = field.at("dropout");
        if (!dropout.json().is_number() || dropout.json().get<double>() != 0)
            dropout.refuse(
                "is not 0, which is unsupported: BPE dropout gives a text different ids each time; set it to null");
    }
    has_unknown_ = field.has("unk_token");
    unknown_ = field.text_or("unk_token", "");
    prefix_ = field.text_or("continuing_subword_prefix", "");
    suffix_ = field.text_or("end_of_word_suffix", "");
    fuse_unknown_ = field.truth_or("fuse_unk", false);
    byte_fallback_ = field.truth_or("byte_fallback", false);
    ignore_merges_ = field.truth_or("ignore_merges", false);
    read_vocabulary(field.at("vocab"));
    read_merges(field.at("merges"));
    read_fallback();
    find_joins();
}

void BpeModel::read_vocabulary(const Field& field) {
    if (!field.json().is_object()) field.refuse("is not an object that maps tokens to ids");
    const auto& entries = field.json().get_ref<const Json::object_t&>();
    int64_t greatest = -1;
    for (const auto& [token, value] : entries) {
        const bool fits = value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(most_ids);
        if (!fits)
            field.refuse(fmt::format("gives the token {} the id {}, expected an integer below {}", quote(token),
                                     quote(message_text(value)), most_ids));
        greatest = std::max(greatest, value.get<int64_t>());
    }
    tokens_.resize(static_cast<size_t>(greatest + 1));
    there_.resize(tokens_.size());
    for (const auto& [token, value] : entries) {
        const auto id = value.get<size_t>();
        if (there_[id])
            field.refuse(
                fmt::format("has the duplicate id {}: of the tokens {} and {}", id, quote(tokens_[id]), quote(token)));
        there_[id] = true;
        tokens_[id] = token;
    }
    ids_.reserve(entries.size());
    low_ids_.assign(256, -1);
    for (size_t id = 0; id < tokens_.size(); ++id) {
        const std::string& token = tokens_[id];
        if (!there_[id]) continue;
        ids_.emplace(token, static_cast<int32_t>(id));
        if (token.empty() || token.size() != length_of(token[0])) continue;
        const char32_t character = character_at(token.data());
        character_ids_.emplace(character, static_cast<int32_t>(id));
        if (character < low_ids_.size()) low_ids_[character] = static_cast<int32_t>(id);
    }
}

void BpeModel::read_merges(const Field& field) {
    if (!field.json().is_array()) field.refuse("is no list of pairs");
    merges_.reserve(field.json().size());
    const bool texts = !field.json().empty() && field.json().front().is_string();
    int32_t rank = 0;
    size_t index = 0;
    for (const Json& value : field.json()) {
        const auto item = [&] { return Field(value, fmt::format("{}[{}]", field.way(), index), field.file()); };
        if (value.is_string() != texts)
            item().refuse("differs in format from the first merge: write all merges as texts \"a b\", or all as pairs");
        if (texts) {
            const std::string& text = value.get_ref<const std::string&>();
            const size_t space = text.find(' ');
            if (!text.starts_with("#version")) {
                if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
                    item().refuse(fmt::format("is {}, expected a merge: two tokens separated by a space", quote(text)));
                add_merge(item, text.substr(0, space), text.substr(space + 1), rank++);
            }
        } else {
            if (!value.is_array() || value.size() != 2 || !value[0].is_string() || !value[1].is_string())
                item().refuse(fmt::format("is {}, expected a merge: a pair of tokens", quote(message_text(value))));
            add_merge(item, value[0].get_ref<const std::string&>(), value[1].get_ref<const std::string&>(), rank++);
        }
        ++index;
    }
}

void BpeModel::add_merge(const std::function<Field()>& at, const std::string& left, const std::string& right,
                         int32_t rank) {
    const auto id = [&](const std::string& token) {
        const auto found = ids_.find(token);
        if (found == ids_.end())
            at().refuse(fmt::format("merges {} and {}, but the token {} is missing in model.vocab", quote(left),
                                    quote(right), quote(token)));
        return found->second;
    };
    const int32_t left_id = id(left), right_id = id(right);
    if (right.size() < prefix_.size()) at().refuse(quote(right) + " is shorter than continuing_subword_prefix");
    merges_.put(left_id, right_id, rank, id(left + right.substr(prefix_.size())));
    merged_.emplace_back(left_id, right_id);
}

void BpeModel::read_fallback() {
    fallback_.assign(256, -1);
    if (!byte_fallback_) return;
    for (size_t byte = 0; byte < 256; ++byte) fallback_[byte] = id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
}

/// Collects the pairs of characters that are adjacent in a merged token. No merge joins any other pair, so a word can
/// be split there. Gives up when a merge takes bytes or the unknown token, which are not characters of the text.
void BpeModel::find_joins() {
    can_cut_ = prefix_.empty() && suffix_.empty();
    low_joins_.assign(low_count * 3, 0);
    std::vector<bool> is_byte(tokens_.size(), false);
    for (const int32_t id : fallback_)
        if (id >= 0) is_byte[static_cast<size_t>(id)] = true;
    for (const auto& [left, right] : merged_) {
        const std::string &a = tokens_[static_cast<size_t>(left)], &b = tokens_[static_cast<size_t>(right)];
        const bool odd = a.empty() || b.empty() || is_byte[static_cast<size_t>(left)] ||
                         is_byte[static_cast<size_t>(right)] || (has_unknown_ && (a == unknown_ || b == unknown_));
        if (odd) can_cut_ = false;
        if (!can_cut_) break;
        const char32_t last = character_at(a.data() + before(a, a.size())), first = character_at(b.data());
        const size_t row = low_index(last), column = low_index(first);
        if (row < low_count && column < low_count)
            low_joins_[row * 3 + column / 64] |= uint64_t{1} << column % 64;
        else
            joins_.put(static_cast<int32_t>(last), static_cast<int32_t>(first), 0, 0);
    }
    merged_ = {};
}

bool BpeModel::cuts(char32_t left, char32_t right) const {
    const size_t row = low_index(left), column = low_index(right);
    const bool joined = row < low_count && column < low_count
                            ? (low_joins_[row * 3 + column / 64] >> column % 64 & 1) != 0
                            : joins_.find(static_cast<int32_t>(left), static_cast<int32_t>(right)) != nullptr;
    // Not next to a missing character: its replacement depends on its neighbours.
    return !joined && character_id(left) >= 0 && character_id(right) >= 0;
}

std::optional<int32_t> BpeModel::id_of(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional<int32_t>(found->second);
}

int32_t BpeModel::character_id(char32_t character) const {
    if (character < low_ids_.size()) return low_ids_[character];
    const auto found = character_ids_.find(character);
    return found == character_ids_.end() ? -1 : found->second;
}

bool BpeModel::take_bytes() {
    if (!prefix_.empty() || !suffix_.empty()) return false;
    std::vector<int32_t> ids(256);
    for (size_t byte = 0; byte < 256; ++byte) {
        ids[byte] = character_id(byte_alphabet()[byte]);
        if (ids[byte] < 0) return false;
    }
    byte_ids_ = std::move(ids);
    in_bytes_ = true;
    if (!ignore_merges_) return true;
    std::string bytes;
    for (const auto& [token, id] : ids_)
        if (bytes_of(token, bytes)) byte_words_.emplace(bytes, id);
    return true;
}

int32_t BpeModel::whole_word(std::string_view word) const {
    if (!ignore_merges_) return -1;
    if (!in_bytes_) return id_of(word).value_or(-1);
    const auto found = byte_words_.find(std::string(word));
    return found == byte_words_.end() ? -1 : found->second;
}

bool BpeModel::fall_back(std::string_view symbol, std::vector<int32_t>& ids) const {
    const auto id = [&](char c) { return fallback_[static_cast<unsigned char>(c)]; };
    if (!byte_fallback_ || std::any_of(symbol.begin(), symbol.end(), [&](char c) { return id(c) < 0; })) return false;
    for (const char c : symbol) ids.push_back(id(c));
    return true;
}

/// Appends ids in the order of Python's `tokenizers`: an unknown token is appended when the next known or unknown
/// character comes, so byte fallbacks may come before it.
void BpeModel::characters(std::string_view word, std::vector<int32_t>& ids, int64_t& lost) const {
    int32_t pending = -1;
    const auto put_pending = [&] {
        if (pending >= 0) ids.push_back(pending);
        pending = -1;
    };
    const bool decorated = !prefix_.empty() || !suffix_.empty();
    for (size_t at = 0; at < word.size();) {
        const size_t length = length_of(word[at]);
        const std::string_view character = word.substr(at, length);
        std::string symbol;
        if (decorated)
            symbol = (at ? prefix_ : "") + std::string(character) + (at + length == word.size() ? suffix_ : "");
        const int32_t id = decorated ? id_of(symbol).value_or(-1) : character_id(character_at(character.data()));
        at += length;
        if (id >= 0) {
            put_pending();
            ids.push_back(id);
        } else if (!fall_back(decorated ? symbol : character, ids)) {
            if (!has_unknown_) {
                ++lost;
                continue;
            }
            const std::optional<int32_t> unknown = id_of(unknown_);
            if (!unknown)
                throw Error(fmt::format(
                    "cannot encode the character {}: it is missing in model.vocab, and so is the unk_token {}",
                    quote(character), quote(unknown_)));
            if (!fuse_unknown_) put_pending();
            pending = *unknown;
        }
    }
    put_pending();
}

}  // namespace orrery::tokenizer
