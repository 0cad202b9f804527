#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace orrery {

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
