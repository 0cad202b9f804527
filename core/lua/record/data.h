#pragma once
#include "lua/stack.h"
#include "run/data/data.h"

namespace orrery::lua {

/// What o.data.NAME returns.
struct Data {
    DataSpec spec;
    std::string function;          ///< "o.data.text"
    std::vector<std::string> own;  ///< what the call says of how samples are drawn, which a mixture says of its sources
};

/// Samples of a full step. Throws Error at the call of o.data.NAME where nothing says how many.
int64_t batch_of(const Data& data);

template <>
struct Class<Data> {
    static constexpr const char* name = "orrery.data";
    static constexpr const char* what = "a data source";
};

}  // namespace orrery::lua
