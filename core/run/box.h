#pragma once
#include <functional>
#include <optional>
#include <string>

#include "orrery/tensor.h"

namespace orrery {

/// A rectangular part of a tensor: the index of its first element and its size, one entry per dim.
struct Box {
    Shape offset;
    Shape shape;

    int64_t count() const { return count_of(shape); }
    /// "[0,512]+[8,512]"
    std::string text() const { return text_of(offset) + "+" + text_of(shape); }
    bool operator==(const Box&) const = default;
};

/// What two parts of one tensor share; nullopt when they share nothing.
std::optional<Box> intersect(const Box& a, const Box& b);

/// Visits `part` of two dense row-major blocks of one tensor, both of which contain it, in runs that are contiguous in
/// both: element index in `from`, element index in `to`, count. Runs ascend in both. The fewest runs there are.
void for_runs(const Box& part, const Box& from, const Box& to,
              const std::function<void(int64_t, int64_t, int64_t)>& visit);

}  // namespace orrery
