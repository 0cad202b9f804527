#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe/merge.h"
#include "tokenizer/bpe/word_cache.h"
#include "tokenizer/tokenizer.h"

namespace orrery::tokenizer {

/// Which of the template's special tokens an encoded text gets: a text in parts has one beginning and one end.
enum class Around : uint8_t { none = 0, begin = 1, end = 2, both = 3 };

/// What is to be told of texts once they are encoded.
struct EncodeCounts {
    int64_t unknown = 0;  ///< characters that are not of Unicode 14: other libraries may cut the text elsewhere
    int64_t lost = 0;     ///< characters that the vocabulary lacks, with nothing to stand for them: they have no id
    EncodeCounts& operator+=(const EncodeCounts& other) {
        unknown += other.unknown;
        lost += other.lost;
        return *this;
    }
};

/// Texts to ids, for one thread; remembers words (some 8 MiB).
class Encoder {
public:
    explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

    /// Appends the ids of a text, between those of the file's template that `around` names. Throws Error for bytes that
    /// are not UTF-8, with their offset; nothing is appended then.
    void encode(std::string_view text, Around around, std::vector<int32_t>& ids);
    const EncodeCounts& counts() const { return counts_; }

private:
    void segment(std::string_view text, bool first, std::vector<int32_t>& ids);
    void piece(std::string_view text, size_t head, std::vector<int32_t>& ids);
    void word(std::string_view text, std::vector<int32_t>& ids);
    void word_of_characters(std::string_view text, std::vector<int32_t>& ids);
    void word_in_cache(std::string_view text, std::vector<int32_t>& ids);
    void merge(std::string_view text);

    const Tokenizer* tokenizer_;
    WordCache cache_;
    Merger merger_;
    Pieces pieces_;
    std::string normalized_;
    std::vector<int32_t> merged_;
    EncodeCounts counts_;
};

/// An encoder for each of so many threads, which are there while something is done.
class Encoders {
public:
    Encoders(std::shared_ptr<const Tokenizer> tokenizer, int threads);

    /// Each text's ids, the same whatever the number of threads. Of the texts that are not UTF-8 the first one is
    /// named, by its index.
    std::vector<std::vector<int32_t>> encode(std::span<const std::string_view> texts, Around around);
    /// Calls each(encoder, i) once for every i below `count`, several at once. Where some throw, that of the least i is
    /// thrown here, when all are done.
    void each(size_t count, const std::function<void(Encoder&, size_t)>& each);
    EncodeCounts counts() const;

private:
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::vector<std::unique_ptr<Encoder>> encoders_;
};

}  // namespace orrery::tokenizer
