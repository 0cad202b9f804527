#pragma once
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/config.h"

namespace orrery {

/// Reads the TOML file (empty path: none), lays the `--set` texts ("mesh.tp=4", a later one wins) over it and the
/// defaults of schema.h under it. Every value knows its place: file:line:column, the --set text, or "default".
/// Throws Error naming place, found, expected and remedy: missing or oversized file, bad TOML, unknown keys and tables,
/// wrong types. Tables of plugins ([transport.gloo]) are only checked for being tables.
Config load_config(const std::filesystem::path& file, std::span<const std::string> sets = {});

/// The same from text; `name` stands for the file in messages.
Config parse_config(std::string_view toml, const std::string& name, std::span<const std::string> sets = {});

/// The configuration of a run's folder as its script saw it: a key that `given` of [run] lists is what the list says
/// the configuration had, or is left out. What runs is what load_config reads.
Config load_run_config(const std::filesystem::path& file, std::span<const std::string> sets = {});

/// What a value of these comes from: the default, a --set text, a file, or the list `given` of a run's folder.
enum class Source : uint8_t { fallback, set, file, given };
Source source_of(const Origin& origin);

/// A file that is no run's configuration, as configs/clusters/: every key is let in, without defaults, and whose it is
/// asks for them (Config::reject_unused). The rest is as above.
Config load_toml(const std::filesystem::path& file, std::span<const std::string> sets = {});
Config parse_toml(std::string_view toml, const std::string& name, std::span<const std::string> sets = {});

/// The resolved configuration as TOML that loads back equal; each line ends in a comment with its source.
std::string render(const Config& config);

/// "train.steps 100 -> 586, script.lr left out -> 2" for the keys of `tables` and below that have another value, are
/// new or are gone, and how many there are beyond the first `most`. 1 is 1.0; "" when all are equal.
std::string changes(const Config& before, const Config& now, std::initializer_list<std::string_view> tables,
                    size_t most);

/// Of plugins' names those of a kind, without it: "gloo" of "transport/gloo".
std::vector<std::string> names_of(std::string_view kind, const std::vector<std::string>& names);

/// Throws when a table [transport.X], [device.X], [store.X] or a backend named in [run] or [transport.axis] is not
/// among `names` ("transport/gloo", as Registry::names gives them), or when [transport.axis] names no axis of [mesh].
void check_backends(const Config& config, const std::vector<std::string>& names);

}  // namespace orrery
