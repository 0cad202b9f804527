#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "orrery/data.h"

namespace orrery {

/// Whether a file has token ids: its name ends in .bin.
bool is_token_file(const std::string& path);

struct ScoredIds {
    std::vector<int32_t> ids;
    std::vector<bool> ignored;  ///< by token: whether a mask excludes it as a target; empty: none is excluded
};

/// Reads all ids of a token file through the data plugin, with its headers, index and mask. `source`: makes a source
/// that cuts the file into samples of `sequence` tokens. `ids`: upper bound of valid ids. Throws what the source
/// throws, and Error if the file has more than `most` tokens.
ScoredIds read_token_file(const std::function<std::shared_ptr<DataSource>(int64_t sequence)>& source, int64_t ids,
                          int64_t most);

/// A part of a text that the model reads in one row: it starts at token `begin` and predicts the tokens [from, to).
struct TextWindow {
    int64_t begin = 0, from = 0, to = 0;
    bool operator==(const TextWindow&) const = default;
};

/// The windows of `size` tokens that begin every `stride` (1 to size) tokens of a text. Together they predict each
/// token except the first exactly once. Computed on access, since a list at stride 1 would take 24 bytes per token.
class TextWindows {
public:
    TextWindows() = default;
    TextWindows(int64_t tokens, int64_t size, int64_t stride);
    int64_t count() const { return count_; }
    TextWindow operator[](int64_t index) const;

private:
    int64_t tokens_ = 0, stride_ = 1;
    int64_t reach_ = 1;  ///< number of tokens from a window's first one to the last one that it predicts
    int64_t count_ = 0;
};

/// Fills a window's row: its tokens, 0 after the end of the text; each target is the next token, or -1 if the window
/// does not predict it. Both spans have the window's size.
void fill_row(std::span<const int32_t> text, const TextWindow& window, std::span<int32_t> tokens,
              std::span<int32_t> targets);

/// Sets targets of a window's row to -1 where `ignored` excludes the token (by token of the text; empty: none).
void ignore(const std::vector<bool>& ignored, const TextWindow& window, std::span<int32_t> targets);
/// The number of tokens that a window predicts and that `ignored` does not exclude.
int64_t counted(const std::vector<bool>& ignored, const TextWindow& window);

}  // namespace orrery
