#pragma once
#include <set>

#include "lua/stack.h"
#include "run/data/data.h"
#include "run/script_interface.h"

namespace orrery::lua {

/// What o.data.NAME returns.
struct Data {
    DataSpec spec;
    std::string function;          ///< "o.data.text"
    std::vector<std::string> own;  ///< what the call says of how samples are drawn, which a mixture says of its sources
    std::vector<GivenKey> given;   ///< keys of the configuration that the call, or those of its sources, give
    std::set<std::string> read;    ///< keys of [data] that it, or one of its sources, takes from the configuration
};

/// Tells the host what the calls that made it give: it is what a program is traced for or trained on.
void give_keys(lua_State* L, const Data& data);

/// Samples of a full step. Throws Error at the call of o.data.NAME where nothing says how many.
int64_t batch_of(const Data& data);

template <>
struct Class<Data> {
    static constexpr const char* name = "orrery.data";
    static constexpr const char* what = "a data source";
};

}  // namespace orrery::lua
