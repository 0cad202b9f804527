// Implements native.published_config: a model's config.json as a table, which orrery/published.lua interprets.
#include <fmt/format.h>

#include "base/files/file_kind.h"
#include "base/files/json_file.h"
#include "base/json.h"
#include "base/regular_file.h"
#include "lua/json_table.h"
#include "lua/state.h"

namespace orrery::lua {

namespace {

constexpr int64_t longest_config = int64_t{16} << 20;  // max bytes of config.json

/// native.published_config(folder [, file]) -> the contents of FOLDER/config.json, or of `file`; nil without the file
int published_config(lua_State* L) {
    const std::string folder = check_text(L, 1);
    const bool other = !lua_isnoneornil(L, 2);
    const std::string path = folder + "/" + (other ? check_text(L, 2) : "config.json");
    if (const RegularFile file(folder); file.problem().empty()) {
        const FileKind* kind = file_kind(file.text(32));
        fail(L, fmt::format("{} is {}, expected the folder of a published model with config.json and weights{}{}",
                            folder, kind ? kind->what : "a file", kind ? "\n  " : "", kind ? kind->as_weights : ""));
    }
    if (other && !RegularFile(path).there()) return 0;
    const Json json =
        read_json(path, longest_config,
                  "give the folder of a published model: config.json beside model.safetensors or its index");
    if (!json.is_object()) fail(L, path + " is no JSON object");
    push_json(L, json);
    return 1;
}

}  // namespace

void open_published_config(lua_State* L) {
    lua_pushcfunction(L, guard<published_config>);
    lua_setfield(L, -2, "published_config");
    lua_pushlightuserdata(L, nullptr);
    lua_setfield(L, -2, "null");
}

}  // namespace orrery::lua
