#include "run/verify/encodings.h"

#include <limits>

namespace orrery {

void Encodings::keep(const Key& key, const Shape& shape, const Block& block, const void* local) {
    const std::lock_guard lock(mutex_);
    std::vector<float>& whole = wholes_[key];
    if (whole.empty()) whole.assign(count_of(shape), std::numeric_limits<float>::quiet_NaN());
    place(whole.data(), shape, block, sizeof(float), local);
}

std::vector<float> Encodings::block(const Key& key, const Shape& shape, const Block& block) {
    std::vector<float> local(block.count(), std::numeric_limits<float>::quiet_NaN());
    const std::lock_guard lock(mutex_);
    const auto whole = wholes_.find(key);
    if (whole != wholes_.end()) slice(whole->second.data(), shape, block, sizeof(float), local.data());
    return local;
}

void Encodings::set(ValueId value, bool twin, int64_t rank, int64_t micro, double norm) {
    const std::lock_guard lock(mutex_);
    norms_[{value, twin, rank}][micro] = norm;
}

double Encodings::total(ValueId value, bool twin, int64_t rank, std::optional<int64_t> only) {
    const std::lock_guard lock(mutex_);
    double all = 0;
    for (const auto& [micro, norm] : norms_[{value, twin, rank}])
        if (!only || micro == *only) all += norm;
    return all;
}

void Encodings::clear() {
    wholes_.clear();
    norms_.clear();
}

}  // namespace orrery
