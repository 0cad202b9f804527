// Opens the shipped plugin KIND/FROM and registers what it makes as KIND/NAME.
#include <dlfcn.h>

#include <string_view>

#include "orrery/plugin.h"

namespace {

using orrery::Registry;

constexpr std::string_view kind = KIND;

/// The things that the shipped plugin registers. Its code stays to the end.
const Registry& shipped() {
    static const Registry all = [] {
        void* const library = ::dlopen(SHIPPED, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (!library) throw orrery::Error(::dlerror());
        Registry made;
        static_cast<const orrery::PluginInfo*>(::dlsym(library, "orrery_plugin"))->add_to(made);
        return made;
    }();
    return all;
}

void add(Registry& registry) {
    if (kind == "device") registry.add_device(NAME, shipped().device(FROM, {}));
    if (kind == "transport") registry.add_transport(NAME, shipped().transport(FROM, {}));
    if (kind == "store") registry.add_store(NAME, shipped().store(FROM, {}));
    if (kind == "data") registry.add_data(NAME, shipped().data(FROM, {}));
    if (kind == "strategy") registry.add_strategy(NAME, shipped().strategy(FROM, {}));
    if (kind == "rendezvous") registry.add_rendezvous(NAME, shipped().rendezvous(FROM, {}));
}

}  // namespace

ORRERY_FACTS(FACTS);
ORRERY_PLUGIN(KIND "." NAME, "0.1", add);
