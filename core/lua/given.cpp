#include "lua/given.h"

#include <fmt/format.h>

#include "lua/state.h"

namespace orrery::lua {

void give(lua_State* L, GivenKey key) {
    State& state = state_of(L);
    if (state.taken.count(key.table + "." + key.key) > 0) key.read_too = true;
    state.host().gives(key);
}

OptionOrKey::OptionOrKey(lua_State* L, Fields& fields, const char* table) : L_(L), fields_(fields), table_(table) {}

template <class T>
T OptionOrKey::given_or(const std::optional<T>& given, const char* key, T (*read)(Config&, const char*)) {
    if (given) {
        give(L_, table_, key, *given);
        return *given;
    }
    state_of(L_).taken.insert(fmt::format("{}.{}", table_, key));
    return read(state_of(L_).host().config().table(table_), key);
}

int64_t OptionOrKey::integer(const char* option, int64_t least, const char* key) {
    return given_or<int64_t>(fields_.integer(option, least), key,
                             [](Config& config, const char* name) { return config.integer(name, 0); });
}

double OptionOrKey::number(const char* option, const char* key) {
    return given_or<double>(fields_.number(option), key,
                            [](Config& config, const char* name) { return config.number(name, 0); });
}

std::string OptionOrKey::text(const char* option, const char* key) {
    return given_or<std::string>(fields_.text(option), key,
                                 [](Config& config, const char* name) { return config.text(name, ""); });
}

}  // namespace orrery::lua
