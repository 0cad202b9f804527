#pragma once
#include <optional>
#include <string>

#include "published/graph.h"

namespace orrery::published {

/// A graph that is kept in a folder between runs, by all that it depends on but this program's code: the job's
/// configuration, the script and the words. nullopt: it is not there.
std::optional<Graph> kept_graph(const std::string& folder, const std::string& key);
/// Throws Error where it cannot be written.
void keep_graph(const std::string& folder, const std::string& key, const Graph& graph);

}  // namespace orrery::published
