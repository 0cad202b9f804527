#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "plan/cost_table.h"

namespace orrery {

/// Path of a machine's cost table in the user's cache folder; "": there is no cache folder. `machine`: text of
/// machine_of(); the order of its lines does not matter.
std::string kept_costs_path(const std::string& machine);
bool any_kept_costs();

/// Reads a table of measured costs. Throws Error naming the file if it cannot be read or is not a table.
CostTable read_costs(const std::string& file);
/// The machine's cached cost table; nullopt: none. Throws what read_costs throws.
std::optional<CostTable> kept_costs(const std::string& machine);

}  // namespace orrery
