#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "orrery/layout.h"

namespace orrery {

using ValueId = int32_t;
using OpId = int32_t;
constexpr int32_t none = -1;

/// How long a copy that a `use` mark gathers is saved. `step`: for the whole step. `fragment`: for one phase of a
/// stage. `part`: for one phase of a stage, and the mark asks for no layout: ops read the value as it is stored. Where
/// an op would have to move another operand instead, this value is gathered over the axis, at any cost.
enum class Keep : uint8_t { step, fragment, part };

/// A placement of one value on one axis, set by a strategy: `store` while no op uses the value, `use` when ops read it.
struct Mark {
    enum class What : uint8_t { store, use };
    ValueId value = none;
    What what = What::store;
    std::string axis;
    Placement placement;
    Keep keep = Keep::step;  ///< lifetime of a gathered copy (What::use only)
    bool optional = false;   ///< true: skip the mark when it cannot be applied; false: throw Error
    Origin origin;
};

/// Puts ops in `scope` or below it on pipeline stage `stage`, or recomputes them in the backward pass. `kinds` selects
/// some kinds of ops; empty: all.
struct ScopeMark {
    std::string scope;
    int stage = none;
    bool recompute = false;
    Origin origin;
    std::vector<std::string> kinds = {};
};

/// How many layers before its reader the all-gather of a param with Keep::fragment is issued, and how many layers after
/// its producer a reduce-scatter may still run.
struct PrefetchDepth {
    int64_t layers = 0;
    int64_t bytes = 0;  ///< if not 0: as many layers as have at most this many bytes of gathered params, or gradients

    bool none() const { return layers == 0 && bytes == 0; }
    ORRERY_API std::string text() const;  ///< "2 layers", "1.0 MiB"
    bool operator==(const PrefetchDepth&) const = default;
};

/// A remark of a strategy on what it did not change and why; `orrery check` lists it.
struct Remark {
    ValueId value = none;  ///< value that the remark is about; none: a scope or the whole program
    std::string text;
    Origin origin;
};

/// How pipeline stages run: the axis, the order of fragments, the number of stages per rank.
struct Pipeline {
    std::string axis;      ///< "": no pipeline
    std::string schedule;  ///< name of a Lua function, see scripts/orrery/schedules
    int chunks = 1;
    Origin origin;
};

}  // namespace orrery
