#pragma once
#include "lua/fields.h"
#include "run/script_interface.h"

namespace orrery::lua {

/// Reports to the host that a call in the script sets a configuration key.
void give(lua_State* L, GivenKey key);
template <class T>
void give(lua_State* L, const char* table, const char* key, const T& value) {
    const Origin line = where(L);
    give(L, {table, key, line, ConfigValue{value, line, true}});
}

/// Reads options of a call. For an absent option, reads the configuration key that the option replaces; returns 0 or ""
/// if the configuration has no value and no default for the key.
class OptionOrKey {
public:
    /// `fields`: the call's options; `table`: the configuration's table that has the keys, such as "train".
    OptionOrKey(lua_State* L, Fields& fields, const char* table);

    int64_t integer(const char* option, int64_t least, const char* key);
    double number(const char* option, const char* key);
    std::string text(const char* option, const char* key);

private:
    template <class T>
    T given_or(const std::optional<T>& given, const char* key, T (*read)(Config&, const char*));

    lua_State* L_;
    Fields& fields_;
    const char* table_;
};

}  // namespace orrery::lua
