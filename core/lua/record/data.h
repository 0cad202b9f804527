#pragma once
#include <set>

#include "lua/stack.h"
#include "run/data/data.h"
#include "run/script_interface.h"

namespace orrery::lua {

/// The value that a call of o.data.NAME returns: a source of a program's inputs.
struct Data {
    DataSpec spec;
    std::string function;  ///< name of the function in the script: "o.data.text"
    /// options of the call that say how samples are drawn; sources of a mixture may not have them
    std::vector<std::string> own;
    std::vector<GivenKey> given;  ///< configuration keys set by the call of o.data, or by those of a mixture's sources
    std::set<std::string> read;   ///< keys of [data] read by the call of o.data, or by those of a mixture's sources
};

/// Reports `data.given` to the host; to be called when a script traces or trains with the data.
void give_keys(lua_State* L, const Data& data);

/// Returns the number of samples of a full step. Throws Error at the call of o.data.NAME if none was set.
int64_t batch_of(const Data& data);

template <>
struct Class<Data> {
    static constexpr const char* name = "orrery.data";
    static constexpr const char* what = "a data source";
};

}  // namespace orrery::lua
