// Bounds of documents and positions: which tiles of attention by index have a query that sees a key.
#pragma once

#include "kernels/kernels.h"

namespace orrery::kernels {

/// Inclusive bounds of documents and positions: of some keys, or of the keys that some queries see. The default is
/// empty: it meets no other bounds.
struct Bounds {
    std::int32_t first_document = INT32_MAX, last_document = INT32_MIN, low = INT32_MAX, high = INT32_MIN;

    ORRERY_HOST_DEVICE bool meet(const Bounds& o) const {
        return first_document <= o.last_document && o.first_document <= last_document && low <= o.high && o.low <= high;
    }
    ORRERY_HOST_DEVICE bool within(const Bounds& o) const {
        return first_document >= o.first_document && last_document <= o.last_document && low >= o.low && high <= o.high;
    }
    /// For the bounds of what a query sees, which are of one document: whether it sees this key.
    ORRERY_HOST_DEVICE bool sees(std::int32_t document, std::int32_t position) const {
        return (document == first_document) & (position >= low) & (position <= high);
    }
    ORRERY_HOST_DEVICE void add(const Bounds& o) {
        first_document = o.first_document < first_document ? o.first_document : first_document;
        last_document = o.last_document > last_document ? o.last_document : last_document;
        low = o.low < low ? o.low : low;
        high = o.high > high ? o.high : high;
    }
};

/// The bounds of one key.
ORRERY_HOST_DEVICE Bounds place_of(std::int32_t document, std::int32_t position) {
    return {document, document, position, position};
}
/// The bounds of all keys that a query sees: it sees a key if the key's bounds are within these.
ORRERY_HOST_DEVICE Bounds sought_by(const Attention& s, std::int32_t document, std::int32_t position) {
    if (document < 0) return {};
    const std::int64_t first = std::int64_t{position} - s.window + 1;
    return {document, document, s.window == 0 || first < INT32_MIN ? INT32_MIN : static_cast<std::int32_t>(first),
            s.causal ? position : INT32_MAX};
}

}  // namespace orrery::kernels
