#include "run/verify/encodings.h"

#include <algorithm>
#include <bit>

namespace orrery {

namespace {

/// A NaN that no arithmetic makes.
constexpr uint32_t unknown = 0x7fa5c3e1;

}  // namespace

void Encodings::keep(const Key& key, const Shape& shape, const Block& block, const void* local) {
    const std::lock_guard lock(mutex_);
    std::vector<float>& whole = wholes_[key];
    if (whole.empty()) whole.assign(count_of(shape), std::bit_cast<float>(unknown));
    place(whole.data(), shape, block, sizeof(float), local);
}

std::optional<std::vector<float>> Encodings::block(const Key& key, const Shape& shape, const Block& block) {
    const std::lock_guard lock(mutex_);
    const auto whole = wholes_.find(key);
    if (whole == wholes_.end()) return std::nullopt;
    std::vector<float> local(block.count());
    slice(whole->second.data(), shape, block, sizeof(float), local.data());
    const auto is_unknown = [](float element) { return std::bit_cast<uint32_t>(element) == unknown; };
    if (std::ranges::any_of(local, is_unknown)) return std::nullopt;
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
