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

/// Special tokens that a text gets from the template: those at its beginning, end or both. A text in parts gets `begin`
/// with the first part, `end` with the last.
enum class Around : uint8_t { none = 0, begin = 1, end = 2, both = 3 };

/// Counts of characters that were not encoded reliably, for messages to the user.
struct EncodeCounts {
    int64_t unknown = 0;  ///< characters that are not in Unicode 14: other libraries may split such text differently
    int64_t lost = 0;     ///< number of characters without id: the vocabulary lacks them and there is no unknown token
    EncodeCounts& operator+=(const EncodeCounts& other) {
        unknown += other.unknown;
        lost += other.lost;
        return *this;
    }
};

/// Encodes texts on one thread; caches words (about 8 MiB).
class Encoder {
public:
    explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

    /// Appends the ids of a text, with the template's special tokens that `around` selects. Throws Error with the
    /// offset of invalid UTF-8, and then appends nothing.
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

/// One encoder for each of `threads` threads; the threads exist only during a call.
class Encoders {
public:
    Encoders(std::shared_ptr<const Tokenizer> tokenizer, int threads);

    /// Returns the ids of each text, independent of the number of threads. Throws Error with the index of the first
    /// text that is not UTF-8.
    std::vector<std::vector<int32_t>> encode(std::span<const std::string_view> texts, Around around);
    /// Calls each(encoder, i) once for every i below `count`, concurrently. When calls throw, rethrows the exception of
    /// the smallest i after all have returned.
    void each(size_t count, const std::function<void(Encoder&, size_t)>& each);
    EncodeCounts counts() const;

private:
    std::shared_ptr<const Tokenizer> tokenizer_;
    std::vector<std::unique_ptr<Encoder>> encoders_;
};

}  // namespace orrery::tokenizer
