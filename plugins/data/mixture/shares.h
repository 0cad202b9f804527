// Which of several sources the next sample is of: whole samples in every 4,096.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace shares {

constexpr int64_t window = 4096;

/// How many of `window` samples are each source's: its share rounded up or down, so that they add up, and at least one
/// where the weight is not 0 (Hamilton's method of largest remainders). `too_small`: where there is no such way, the
/// source whose share is less than one sample, else -1.
std::vector<int64_t> counts_of(const std::vector<double>& weights, int64_t& too_small);

/// The sources of a sequence without end, of period `window`: any `window` samples that follow each other have exactly
/// the counts, and shorter ones what lies closest to them, as each place is that of the source which is furthest
/// behind.
class Sequence {
public:
    /// `turn`: the place that the sequence begins at.
    Sequence(const std::vector<int64_t>& counts, int64_t turn);

    size_t source(int64_t index) const { return places_[static_cast<size_t>(at(index) % window)].source; }
    /// How many of the samples before `index` are of the source.
    int64_t before(int64_t index, size_t source) const;
    /// The index of its `count`-th sample, from 0; its count is not 0.
    int64_t index_of(int64_t count, size_t source) const;
    const std::vector<int64_t>& counts() const { return counts_; }

private:
    struct Place {
        uint32_t source = 0;
        int32_t before = 0;  ///< of its source, in the period
    };
    int64_t at(int64_t index) const { return index + turn_; }
    int64_t upto(int64_t place, size_t source) const;

    std::vector<int64_t> counts_;
    int64_t turn_;
    std::vector<Place> places_;                ///< [window]
    std::vector<std::vector<int32_t>> where_;  ///< of each source its places, ascending
};

}  // namespace shares
