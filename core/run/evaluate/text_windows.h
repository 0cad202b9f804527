#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "orrery/data.h"

namespace orrery {

/// Whether a file is one of token ids, by the end of its name: .bin.
bool is_token_file(const std::string& path);

/// The ids of a text, and those that are no targets.
struct ScoredIds {
    std::vector<int32_t> ids;
    std::vector<bool> ignored;  ///< by token; empty: none
};

/// All ids of a file, as data/tokens reads it, with its headers, index and mask. `source`: makes one that cuts the file
/// in samples of so many tokens. `ids`: those allowed are below it. Throws Error where it does, and where there are
/// more than `most` tokens.
ScoredIds read_token_file(const std::function<std::shared_ptr<DataSource>(int64_t sequence)>& source, int64_t ids,
                          int64_t most);

/// Part of a text that a model sees at once: its tokens from `begin` on; it predicts those of [from, to).
struct TextWindow {
    int64_t begin = 0, from = 0, to = 0;
    bool operator==(const TextWindow&) const = default;
};

/// Windows of `size` tokens every `stride` (1 to size) over a text of so many tokens: together they predict each token
/// but the first, once. Made when they are asked for: at a stride of 1 a list would be 24 bytes a token.
class TextWindows {
public:
    TextWindows() = default;
    TextWindows(int64_t tokens, int64_t size, int64_t stride);
    int64_t count() const { return count_; }
    TextWindow operator[](int64_t index) const;

private:
    int64_t tokens_ = 0, stride_ = 1;
    int64_t reach_ = 1;  ///< tokens from a window's beginning to the last one that it predicts
    int64_t count_ = 0;
};

/// The row of a window: its tokens, 0 behind the end of the text; each target is the token behind, -1 where it does not
/// count. Both have `size` places.
void fill_row(std::span<const int32_t> text, const TextWindow& window, std::span<int32_t> tokens,
              std::span<int32_t> targets);

/// The targets of a window's row that are `ignored`, by token of the text, become -1; of an empty list none.
void ignore(const std::vector<bool>& ignored, const TextWindow& window, std::span<int32_t> targets);
/// How many a window predicts that are not ignored.
int64_t counted(const std::vector<bool>& ignored, const TextWindow& window);

}  // namespace orrery
