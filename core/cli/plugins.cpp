#include <cstdio>

#include "base/text.h"
#include "cli/commands.h"
#include "plugin/loader.h"

namespace orrery {

int plugins_command(const std::vector<std::string>& more) {
    const std::vector<std::string> folders = and_plugin_folders(more);
    const Loader loader(folders);
    std::printf("plugins of %s\n", std::string(describe_abi(this_abi())).c_str());
    for (const PluginReport& report : loader.list()) {
        if (report.reason.empty()) {
            std::printf("  %-24s %-8s %s\n", report.name.c_str(), report.version.c_str(), report.path.c_str());
            if (!report.cannot_run.empty()) std::printf("      cannot run here: %s\n", report.cannot_run.c_str());
            continue;
        }
        std::printf("  %-24s cannot be used\n", report.name.c_str());
        for (const std::string& line : split(report.reason, '\n')) std::printf("      %s\n", line.c_str());
    }
    std::printf("looked in %s\n", join(folders, ", ").c_str());
    return 0;
}

}  // namespace orrery
