#include "cli/launchers.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "config/load.h"
#include "config/schema.h"
#include "orrery/error.h"
#include "plugin/loader.h"
#include "run/settings.h"

namespace orrery {
namespace {

KnownLauncher known(const std::shared_ptr<const Loader>& loader, const std::string& name, const Origin& asked) {
    const PluginFacts facts = loader->facts("launcher", name, asked);
    KnownLauncher one{
        name, facts.values("variables"), facts.values("inside"), facts.has("uncounted"), facts.has("restarts"),
        {},   facts.has("late_name")};
    one.open = [loader, name, asked] {
        Registry registry;
        loader->load("launcher", name, registry, asked);
        return registry.launcher(name, asked)();
    };
    return one;
}

std::vector<std::string> in_order(const Loader& loader) {
    std::vector<std::string> names = loader.present("launcher");
    const std::vector<std::string> tree = Loader(plugin_folders()).present("launcher");
    std::stable_partition(names.begin(), names.end(),
                          [&](const std::string& name) { return std::ranges::count(tree, name) > 0; });
    return names;
}

}  // namespace

Launchers launchers_by(Config& config) {
    Config& run = config.table("run");
    Launchers all;
    all.asked = run.where("launcher");
    all.ports = ports_of(config);
    const std::string name = run.require_text("launcher");
    if (name == own_launcher) return all;
    const auto loader = std::make_shared<const Loader>(and_plugin_folders(config.table("plugins").texts("path")));
    all.required = name != any_launcher;
    for (const std::string& one : all.required ? std::vector<std::string>{name} : in_order(*loader))
        all.known.push_back(known(loader, one, all.asked));
    return all;
}

Launchers launchers_of(const std::function<Config()>& read) {
    Config config = load_config("");
    try {
        config = read();
    } catch (const Error&) {
    }
    return launchers_by(config);
}

void tell_nodes_left_out(Config& config) {
    if (const std::string left_out = nodes_left_out(launchers_by(config)); !left_out.empty())
        std::fprintf(stderr, "orrery: %s\n", left_out.c_str());
}

}  // namespace orrery
