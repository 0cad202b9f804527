#include "chosen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/text.h"

namespace orrery::conformance {

namespace {

/// No exception: Catch2 asks for the transports where it can take none.
[[noreturn]] void refuse(const std::string& why) {
    fmt::print(stderr, "{}\n", why);
    std::exit(2);
}

}  // namespace

std::vector<std::string> chosen() {
    const char* const names = std::getenv("ORRERY_CONFORMANCE_TRANSPORTS");
    return names == nullptr || *names == 0 ? std::vector<std::string>() : split(names, ',');
}

std::vector<std::string> plugins_of_suite() {
    const char* const folder = std::getenv("ORRERY_CONFORMANCE_PLUGINS");
    return and_plugin_folders(folder == nullptr || *folder == 0 ? std::vector<std::string>()
                                                                : std::vector<std::string>{folder});
}

std::vector<PluginReport> transports() {
    const Loader loader(plugins_of_suite());
    std::vector<PluginReport> all = loader.list();
    const std::vector<std::string> wanted = chosen();
    std::erase_if(all, [&](const PluginReport& plugin) {
        if (!plugin.name.starts_with("transport/")) return true;
        const std::string name = plugin.name.substr(plugin.name.find('/') + 1);
        return !wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end();
    });
    for (const std::string& name : wanted) {
        const auto found = std::find_if(all.begin(), all.end(),
                                        [&](const PluginReport& plugin) { return plugin.name == "transport/" + name; });
        if (found == all.end())
            refuse(
                fmt::format("conformance: no transport {} in {}\n  set ORRERY_CONFORMANCE_PLUGINS to the "
                            "folder of liborrery_transport_{}.so",
                            name, fmt::join(loader.folders(), ", "), name));
        if (!found->reason.empty())
            refuse(fmt::format("conformance: {} cannot be loaded: {}", found->path, found->reason));
    }
    return all;
}

}  // namespace orrery::conformance
