#include "cli/run_record/kept_script.h"

#include <fmt/format.h>

#include <algorithm>
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

std::string how_to_use_copies(const std::string& folder) {
    constexpr std::string_view step = "step-";
    std::error_code ignored;
    if (fs::exists(fs::path(folder) / unfinished_config, ignored))
        return "\n  a copy to it was killed before it was finished: run `orrery checkpoints copy` again";
    std::string newest;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
        const std::string name = entry.path().filename().string();
        const bool numbered = name.starts_with(step) && name.find_first_not_of("0123456789", step.size()) == name.npos;
        if (numbered && fs::exists(entry.path() / "manifest.json", ignored)) newest = std::max(newest, name);
    }
    if (newest.empty()) return "";
    const size_t digits = std::min(newest.find_first_not_of('0', step.size()), newest.size() - 1);
    return fmt::format(
        "\n  it has copies of checkpoints ({}); a run reads those in its folder checkpoints/\n  copy one there with "
        "`orrery checkpoints copy {} {} --to NEW/checkpoints`, and name its script with --set run.folder=NEW",
        newest, folder, newest.substr(digits));
}

}  // namespace orrery
