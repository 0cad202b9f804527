#pragma once
#include <set>

#include "lua/stack.h"
#include "run/data/data.h"
#include "run/script_interface.h"

namespace orrery::lua {

/// The value that o.data.NAME returns.
struct Data {
    DataSpec spec;
    std::string function;  ///< the script's name of the function: "o.data.text"
    /// options of the call that say how samples are drawn; sources of a mixture may not have them
    std::vector<std::string> own;
    std::vector<GivenKey> given;  ///< configuration keys that the call, or a source's call, sets
    std::set<std::string> read;   ///< keys of [data] that the call, or a source's call, reads from the configuration
};

/// Reports to the host the keys that the calls set. Called when the data is traced for, or trained on.
void give_keys(lua_State* L, const Data& data);

/// Returns the samples of a full step. Throws Error at the call of o.data.NAME if call and configuration lack them.
int64_t batch_of(const Data& data);

template <>
struct Class<Data> {
    static constexpr const char* name = "orrery.data";
    static constexpr const char* what = "a data source";
};

}  // namespace orrery::lua
