#pragma once
#include <optional>
#include <string>

#include "published/graph.h"

namespace orrery::published {

/// What is left of a plan: what its time depends on, and the memory that it takes.
struct Kept {
    Graph graph;
    int64_t peak_bytes = 0;
};

/// Names and contents of all Lua files in a folder and below, in their order: what a script may require from it.
std::string text_of_scripts(const std::string& folder);

/// A graph that is kept in a folder between runs, by all that it depends on but this program's code: the job's
/// configuration, the script with its library and the software profile. nullopt: it is not there.
std::optional<Kept> kept_graph(const std::string& folder, const std::string& key);
/// Throws Error where it cannot be written.
void keep_graph(const std::string& folder, const std::string& key, const Kept& kept);

}  // namespace orrery::published
