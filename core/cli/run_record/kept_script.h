#pragma once
#include <string>

namespace orrery {

class Config;

/// The script that a run's folder keeps: in lua/, where the modules beside it lie too, else script.lua of folders from
/// before there was lua/. `config`: the run's, whose run.script names it. The file need not be there.
std::string kept_script_of(const std::string& folder, Config& config);

}  // namespace orrery
