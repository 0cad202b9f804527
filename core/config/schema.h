#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// Values of run.launcher that are not names of plugins.
constexpr std::string_view any_launcher = "auto", own_launcher = "orrery";

enum class ConfigKind : uint8_t { flag, integer, number, text, texts };
std::string_view name_of(ConfigKind kind);  ///< text for messages: "an integer"

struct SchemaKey {
    std::string_view table;  ///< name of the table: "run"
    std::string_view key;    ///< name of the key: "device"; "*": every key of the table
    ConfigKind kind;
    std::string_view fallback;  ///< the default as TOML text; "": absent unless set
    std::string_view help;
    double least = -std::numeric_limits<double>::infinity();  ///< min legal value, for numbers
    std::string_view one_of = {};                             ///< allowed values of a text, "auto|never"; "": any
    bool per_host = false;                                    ///< true: each host may have its own value
};

/// Returns every key of the core's configuration tables, in the order in which files list them.
const std::vector<SchemaKey>& schema();
/// Returns the entry of a key, or that of "*" in its table; nullptr if the key is unknown.
const SchemaKey* find_schema(std::string_view table, std::string_view key);
/// Whether each host may have its own value of the key. True for [device.NAME] and [store.NAME]; for keys of other
/// plugins, each plugin decides (Config::of_host).
bool is_per_host(std::string_view table, std::string_view key);
/// Whether the table's keys belong to a plugin or to the script: [transport.gloo], [script].
bool is_open_table(std::string_view table);
bool is_known_table(std::string_view table);
std::vector<std::string> schema_names(std::string_view table);

}  // namespace orrery
