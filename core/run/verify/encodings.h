#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "layout/shards.h"
#include "orrery/program.h"

namespace orrery {

/// What ranks and their twins have encoded in a step, and how far from it is what was decoded. A rank encodes before
/// any other decodes.
class Encodings {
public:
    /// `value`: of all ranks or of all twins. `island`, `micro`: 0 where they have the same, or parts of one whole.
    struct Key {
        ValueId value = none;
        bool twin = false;
        int64_t island = 0, micro = 0;
        auto operator<=>(const Key&) const = default;
    };
    /// Keeps a rank's block, f32, of a value of the shape.
    void keep(const Key& key, const Shape& shape, const Block& block, const void* local);
    /// The block of a value; nullopt if `keep` was not called for all of it.
    std::optional<std::vector<float>> block(const Key& key, const Shape& shape, const Block& block);
    /// A norm that belongs to a value on a rank.
    void set(ValueId value, bool twin, int64_t rank, int64_t micro, double norm);
    /// The sum over a rank's micro-batches; or that of one.
    double total(ValueId value, bool twin, int64_t rank, std::optional<int64_t> only);
    void clear();

private:
    std::mutex mutex_;
    std::map<Key, std::vector<float>> wholes_;
    std::map<std::tuple<ValueId, bool, int64_t>, std::map<int64_t, double>> norms_;
};

}  // namespace orrery
