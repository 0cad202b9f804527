#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/layout.h"

namespace orrery {

using ValueId = int32_t;
using OpId = int32_t;
constexpr int32_t none = -1;

enum class Keep : uint8_t { step, fragment };

/// What a strategy asks of one value on one axis. `store`: how it rests; `use`: how ops read it.
struct Mark {
    enum class What : uint8_t { store, use };
    ValueId value = none;
    What what = What::store;
    std::string axis;
    Placement placement;
    Keep keep = Keep::step;  ///< use: how long a gathered copy lives
    bool optional = false;   ///< do nothing where it cannot be honoured, instead of failing
    Origin origin;
};

/// Ops whose scope is `scope` or below it go to pipeline stage `stage`, or are recomputed in the backward pass: all of
/// them, or those of some kinds.
struct ScopeMark {
    std::string scope;
    int stage = none;
    bool recompute = false;
    Origin origin;
    std::vector<std::string> kinds = {};
};

/// How far gathers of params with Keep::fragment run ahead of the fragment's layer that reads them, and how far behind
/// its maker what waits for a reduce-scatter may stand.
struct PrefetchDepth {
    int64_t layers = 0;
    int64_t bytes = 0;  ///< not 0: as many layers as the gathered params, or the gradients, fit in

    bool none() const { return layers == 0 && bytes == 0; }
    ORRERY_API std::string text() const;  ///< "2 layers", "1.0 MiB"
    bool operator==(const PrefetchDepth&) const = default;
};

/// What a strategy leaves as it is, and why: `orrery check` lists it.
struct Remark {
    ValueId value = none;  ///< none: about a scope or the whole program
    std::string text;
    Origin origin;
};

/// How stages run: over which axis, in which order of fragments, how many stages a rank.
struct Pipeline {
    std::string axis;      ///< "": no pipeline
    std::string schedule;  ///< the name of a Lua function, see scripts/orrery/schedules
    int chunks = 1;
    Origin origin;
};

}  // namespace orrery
