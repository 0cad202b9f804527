#include "cli/run_record/kept_script.h"

#include <filesystem>

#include "orrery/config.h"

namespace orrery {

namespace fs = std::filesystem;

std::string kept_script_of(const std::string& folder, Config& config) {
    const fs::path name = fs::path(config.table("run").text("script", "")).filename();
    const fs::path beside_modules = fs::path(folder) / "lua" / name;
    std::error_code ignored;
    if (!name.empty() && fs::is_regular_file(beside_modules, ignored)) return beside_modules.string();
    return (fs::path(folder) / "script.lua").string();
}

}  // namespace orrery
