#include "cli/submit/engines.h"

#include <algorithm>
#include <cstdlib>

#include "orrery/error.h"
#include "plugin/loader.h"

namespace orrery {
namespace {

Loader loader_of(Config& config) { return Loader(and_plugin_folders(config.table("plugins").texts("path"))); }

}  // namespace

LoadedEngine load_engine(const std::string& name, Config& config, const Origin& asked) {
    const Loader loader = loader_of(config);
    LoadedEngine loaded{name, loader.facts("engine", name, asked), {}, nullptr};
    loader.load("engine", name, loaded.registry, asked);
    Config& options = config.table("submit").table(name);
    loaded.engine = loaded.registry.engine(name, asked)(options);
    options.reject_unused();
    return loaded;
}

OwnJob own_job(Config& config, const std::string& preferred) {
    const Environment environment([](const char* name) -> const char* { return std::getenv(name); });
    const Loader loader = loader_of(config);
    OwnJob found;
    for (const std::string& name : loader.present("engine")) {
        const std::vector<std::string> variables = loader.facts("engine", name, {}).values("variables");
        if (std::ranges::none_of(variables, [&](const auto& one) { return environment.has(one.c_str()); })) continue;
        const std::string own = load_engine(name, config, {}).engine->own_name(environment);
        if (!own.empty() && (found.name.empty() || name == preferred)) found = {name, own};
    }
    return found;
}

}  // namespace orrery
