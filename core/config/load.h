#pragma once
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/config.h"

namespace orrery {

/// Reads a configuration from a TOML file ("": none). The `--set` texts ("mesh.tp=4"; later ones win) override the
/// file, and the file overrides the defaults of schema.h. Every value has an origin: file:line:column, the --set text,
/// or "default". Throws Error naming place, found, expected and remedy, for a missing or oversized file, invalid TOML,
/// unknown keys and tables, and wrong types. Tables of plugins ([transport.gloo]) are only checked to be tables.
Config load_config(const std::filesystem::path& file, std::span<const std::string> sets = {});

/// Does the same as load_config for the TOML text `toml`, which messages call `name`.
Config parse_config(std::string_view toml, const std::string& name, std::span<const std::string> sets = {});

/// Reads the configuration in a run's folder as its script saw it: keys listed in run.given have the listed value, or
/// are absent. load_config, in contrast, reads the values that the run used.
Config load_run_config(const std::filesystem::path& file, std::span<const std::string> sets = {});

/// Where a value of a configuration comes from: the default, a --set text, a file, or run.given of a run's folder.
enum class Source : uint8_t { fallback, set, file, given };
Source source_of(const Origin& origin);

/// Reads a TOML file that is not a run's configuration, such as one in configs/clusters/, as load_config does, but
/// accepts all keys and has no defaults. The caller checks for unused keys (Config::reject_unused).
Config load_toml(const std::filesystem::path& file, std::span<const std::string> sets = {});
Config parse_toml(std::string_view toml, const std::string& name, std::span<const std::string> sets = {});

/// Renders a configuration as TOML that loads to the same values; a comment in each line names the value's source.
std::string render(const Config& config);

/// Lists keys of `tables` and their sub-tables that differ between two configurations: "train.steps 100 -> 586,
/// script.lr left out -> 2". After the first `most`, says how many more. 1 equals 1.0; "" if all are equal.
std::string changes(const Config& before, const Config& now, std::initializer_list<std::string_view> tables,
                    size_t most);

/// Returns those names in "transport/gloo", ... that are of one kind, without the kind: "gloo".
std::vector<std::string> names_of(std::string_view kind, const std::vector<std::string>& names);

/// Throws Error if `names` ("transport/gloo") lack the plugin of a table [transport.X], [device.X], [store.X] or a
/// backend named in [run] or [transport.axis]. Also throws if [transport.axis] names an axis that [mesh] lacks.
void check_backends(const Config& config, const std::vector<std::string>& names);

}  // namespace orrery
