// Chooses the source of each sample: whole samples in every 4,096.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shares {

constexpr int64_t window = 4096;

/// The number of samples of each source in a window: its share rounded up or down, so that the sum is `window`, and at
/// least one where the weight is not 0 (Hamilton's method of largest remainders). `too_small` is set to a source whose
/// share is less than one sample when not all can get one, else to -1.
std::vector<int64_t> counts_of(const std::vector<double>& weights, int64_t& too_small);

/// An endless sequence of sources with period `window`: any `window` consecutive samples have exactly the counts, and
/// shorter runs are close to the shares. Each place goes to the source that is furthest below its share so far, the
/// first one among equals. Counts of 4, 2, 2 in a window of 8:
///
///     place   0 1 2 3 4 5 6 7
///     source  0 1 2 0 0 1 2 0
///
/// The sequence is a table of one window, so any sample can be drawn alone: source() is O(1), before() and index_of()
/// are O(log window).
class Sequence {
public:
    /// `turn`: the place in the window at which the sequence starts.
    Sequence(const std::vector<int64_t>& counts, int64_t turn);

    size_t source(int64_t index) const { return places_[static_cast<size_t>(at(index) % window)].source; }
    /// Number of samples of the source before `index`.
    int64_t before(int64_t index, size_t source) const;
    /// The index of the source's `count`-th sample, from 0. The source must have samples.
    int64_t index_of(int64_t count, size_t source) const;
    const std::vector<int64_t>& counts() const { return counts_; }

private:
    struct Place {
        uint32_t source = 0;
        int32_t before = 0;  ///< samples of the same source before it in the window
    };
    int64_t at(int64_t index) const { return index + turn_; }
    int64_t upto(int64_t place, size_t source) const;

    std::vector<int64_t> counts_;
    int64_t turn_;
    std::vector<Place> places_;                ///< [window]
    std::vector<std::vector<int32_t>> where_;  ///< by source: its places, ascending
};

}  // namespace shares
