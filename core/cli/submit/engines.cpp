#include "cli/submit/engines.h"

#include "orrery/error.h"
#include "plugin/loader.h"
#include "run/settings.h"

namespace orrery {
LoadedEngine load_engine(const std::string& name, Config& config, const Origin& asked) {
    const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
    LoadedEngine loaded{name, loader.facts("engine", name, asked), {}, nullptr};
    loader.load("engine", name, loaded.registry, asked);
    Config options = with_ports(config, config.table("submit").table(name));
    loaded.engine = loaded.registry.engine(name, asked)(options);
    options.reject_unused();
    return loaded;
}

}  // namespace orrery
