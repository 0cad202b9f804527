#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lua/stack.h"

namespace orrery::lua {

/// Reads a table of named options, `o.data.text { path = ... }`. Each read records its key; `finish` throws Error at
/// the first key that was never read, with a "did you mean". Errors name the function and the key.
class Fields {
public:
    /// `index`: stack index of the table; nil or none counts as an empty table.
    Fields(lua_State* L, int index, std::string function);

    bool has(std::string_view key);
    std::optional<bool> flag(std::string_view key);
    std::optional<int64_t> integer(std::string_view key, int64_t least = INT64_MIN);
    std::optional<double> number(std::string_view key);
    std::optional<std::string> text(std::string_view key);
    std::vector<std::string> texts(std::string_view key);
    std::vector<int64_t> integers(std::string_view key);
    /// Pushes the value of the table's field `key`; nil when it is absent.
    void push_field(std::string_view key);
    /// Throws Error for keys of the table that were not read. `with_list`: entries 1..n are allowed.
    void finish(bool with_list = false);

    /// Throws Error about a field's value: "nn.linear: KEY is ..., expected WHAT".
    [[noreturn]] void wrong(std::string_view key, std::string_view what);

private:
    lua_State* L_;
    int index_;  ///< stack index of the table of options; 0: there is no table
    std::string function_;
    std::vector<std::string> asked_;
};

}  // namespace orrery::lua
