#include "compile/capacity.h"

#include <algorithm>

namespace orrery {

void CapacityChoice::resume(const Saved& saved) {
    again_ = saved.again;
    if (!any()) return;
    const auto found = std::lower_bound(capacities_.begin(), capacities_.end(), saved.capacity);
    at_ = std::min<size_t>(found - capacities_.begin(), capacities_.size() - 1);
    unneeded_ = now() == saved.capacity ? saved.unneeded : 0;
}

bool CapacityChoice::grow() {
    if (at_ + 1 >= capacities_.size()) return false;
    ++at_;
    ++again_;
    unneeded_ = 0;
    return true;
}

void CapacityChoice::fitted(bool unneeded) {
    unneeded_ = unneeded && at_ > 0 ? unneeded_ + 1 : 0;
    if (unneeded_ < unneeded_steps) return;
    --at_;
    unneeded_ = 0;
}

}  // namespace orrery
