#pragma once
#include <memory>
#include <string>
#include <vector>

#include "orrery/engine.h"
#include "orrery/registry.h"
#include "plugin/facts.h"

namespace orrery {

/// An engine with the facts in its plugin's file (ORRERY_FACTS):
///   variables=A,B  one of these is set in every job of the engine
///   programs=A,B   programs that `orrery submit` needs in PATH
///   remote         the run's folder and data are where the job runs, and may not be visible to `orrery submit`
///   foreground     the call of submit() lasts as long as the job: `orrery submit` becomes its program
struct LoadedEngine {
    std::string name;
    PluginFacts facts;
    Registry registry;
    std::unique_ptr<Engine> engine;  ///< declared last: destroyed before the registry
};

/// Loads the engine of a name and makes it from its table [submit.NAME], which also gets [run] ports, as `ports`.
/// Throws Error at `asked` for an unknown name, and at a key that the engine does not read.
LoadedEngine load_engine(const std::string& name, Config& config, const Origin& asked);

}  // namespace orrery
