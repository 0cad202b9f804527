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
