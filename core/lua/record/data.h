#pragma once
#include "lua/stack.h"
#include "run/data/data.h"

namespace orrery::lua {

/// What o.data.NAME returns.
struct Data {
    DataSpec spec;
};

template <>
struct Class<Data> {
    static constexpr const char* name = "orrery.data";
    static constexpr const char* what = "a data source";
};

}  // namespace orrery::lua
