#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "plan/cost_table.h"

namespace orrery {

/// Where the table of a machine (`machine_of`, its lines in any order) is kept in the user's cache folder; "": there is
/// no such folder.
std::string kept_costs_path(const std::string& machine);
/// Whether any machine's table is kept: costs a look at a folder.
bool any_kept_costs();

/// A file's table. Throws Error where it cannot be read or is none, saying which file.
CostTable read_costs(const std::string& file);
/// The machine's kept table; nullopt: none is kept. Throws as read_costs.
std::optional<CostTable> kept_costs(const std::string& machine);

}  // namespace orrery
