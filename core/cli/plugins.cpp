#include <fmt/format.h>

#include <cstdio>

#include "base/text.h"
#include "cli/commands.h"
#include "plugin/code_digest.h"
#include "plugin/loader.h"

namespace orrery {

std::string version_text() {
    const LibraryCode own = this_code();
    std::string text = fmt::format("orrery {}\n{}\ncode of:", ORRERY_VERSION, describe_abi(this_abi()));
    const auto line = [&](const std::string& name, const std::string& digest, const std::string& path) {
        text += fmt::format("\n  {:24} {:40} {}", name, digest.empty() ? "none" : digest, path);
    };
    line("liborrery", own.digest, own.path);
    for (const PluginReport& plugin : Loader(plugin_folders()).files()) line(plugin.name, plugin.digest, plugin.path);
    return text;
}

int plugins_command(const std::vector<std::string>& more) {
    const std::vector<std::string> folders = and_plugin_folders(more);
    const Loader loader(folders);
    std::printf("plugins of %s\n", std::string(describe_abi(this_abi())).c_str());
    for (const PluginReport& report : loader.list()) {
        if (report.reason.empty()) {
            std::printf("  %-24s %-8s %-12.12s %s\n", report.name.c_str(), report.version.c_str(),
                        report.digest.c_str(), report.path.c_str());
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
