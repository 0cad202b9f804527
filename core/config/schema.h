#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

/// Values of run.launcher that name no plugin.
constexpr std::string_view any_launcher = "auto", own_launcher = "orrery";

enum class ConfigKind : uint8_t { flag, integer, number, text, texts };
std::string_view name_of(ConfigKind kind);  ///< "an integer"

/// One key that the core reads.
struct SchemaKey {
    std::string_view table;  ///< "run"
    std::string_view key;    ///< "device"; "*": every key of the table
    ConfigKind kind;
    std::string_view fallback;  ///< the default as TOML text; "": absent unless set
    std::string_view help;
    double least = -std::numeric_limits<double>::infinity();  ///< numbers: the smallest value allowed
    std::string_view one_of = {};                             ///< texts: "auto|never": what is allowed; "": anything
    bool per_host = false;                                    ///< each host may have another value
};

/// Every key of every core table, in the order in which they are rendered.
const std::vector<SchemaKey>& schema();
/// The key's entry, also through "*"; nullptr when unknown.
const SchemaKey* find_schema(std::string_view table, std::string_view key);
/// Whether each host may have another value of it. [device.NAME] and [store.NAME] are of a host; of other keys that
/// belong to a plugin it says so itself (Config::of_host).
bool is_per_host(std::string_view table, std::string_view key);
/// True for tables whose keys belong to a plugin or to the script: [transport.gloo], [script].
bool is_open_table(std::string_view table);
bool is_known_table(std::string_view table);
/// Names that may stand at this place: keys and sub-tables of `table` ("" for the root).
std::vector<std::string> schema_names(std::string_view table);

}  // namespace orrery
