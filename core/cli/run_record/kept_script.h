#pragma once
#include <string>

namespace orrery {

class Config;

/// Returns the path of the script saved in a run's folder: in lua/, with its modules, or script.lua in older folders,
/// which have no lua/. `config`: the run's configuration, which names the script. The file may not exist.
std::string kept_script_of(const std::string& folder, Config& config);

/// What `orrery checkpoints copy` calls the configuration of a folder until it has made that a run's.
inline constexpr const char* unfinished_config = "config.toml.unfinished";

/// For a folder with checkpoints of its own, as `orrery checkpoints copy` writes them: lines of a message that say how
/// a run gets them, since a run reads only its checkpoints/; for a run's folder that a killed copy left, how to finish
/// it. "" for any other folder.
std::string how_to_use_copies(const std::string& folder);

}  // namespace orrery
