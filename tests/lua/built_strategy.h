#pragma once
#include "folders.h"
#include "orrery/registry.h"
#include "plugin/loader.h"

namespace orrery {

/// A strategy from the plugins of this build, for FakeHost::strategies.
inline std::unique_ptr<Strategy> built_strategy(std::string_view name, Config& options, const Origin& asked) {
    static Registry registry;
    Loader({in_build("plugins")}).load("strategy", name, registry, asked);
    return registry.strategy(name, asked)(options, asked);
}

}  // namespace orrery
