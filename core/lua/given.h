#pragma once
#include "lua/fields.h"
#include "run/script_interface.h"

namespace orrery::lua {

/// Reports to the host that a call of the script sets a key of the configuration.
void give(lua_State* L, GivenKey key);
/// Reports that a call sets `table`.`key` to `value`; the origin is the line of the current call.
template <class T>
void give(lua_State* L, const char* table, const char* key, const T& value) {
    const Origin line = where(L);
    give(L, {table, key, line, ConfigValue{value, line, true}});
}

/// Reads options of a call. When an option is absent, reads the configuration key that the option replaces; returns 0
/// or "" when that key has no default.
class OptionOrKey {
public:
    /// `fields`: the call's options; `table`: the configuration's table with the keys, such as "train".
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
