#pragma once
#include <string>

namespace orrery {

class Config;

/// Returns the path of the script saved in a run's folder: in lua/, with its modules, or script.lua in older folders,
/// which have no lua/. `config`: the run's configuration, which names the script. The file may not exist.
std::string kept_script_of(const std::string& folder, Config& config);

}  // namespace orrery
