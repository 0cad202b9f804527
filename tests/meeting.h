#pragma once
#include <memory>

#include "folders.h"
#include "orrery/registry.h"
#include "orrery/rendezvous.h"
#include "plugin/loader.h"
#include "run/control/rendezvous.h"

namespace orrery::test {

/// The plugin rendezvous/tcp of this build.
inline RendezvousBackend& tcp() {
    static const std::unique_ptr<RendezvousBackend> backend = [] {
        Registry registry;
        Loader({in_build("plugins")}).load("rendezvous", "tcp", registry, {});
        Config none;
        return registry.rendezvous("tcp", {})(none);
    }();
    return *backend;
}

/// What ranks that are threads need of plugins: the CPU, a transport, a store in memory and a way to meet.
inline const Registry& job_plugins() {
    static Registry made;
    static const bool loaded = [] {
        const Loader loader({in_build("plugins")});
        loader.load("device", "cpu", made, {});
        loader.load("transport", "threads", made, {});
        loader.load("store", "memory", made, {});
        loader.load("rendezvous", "tcp", made, {});
        return true;
    }();
    (void)loaded;
    return made;
}

}  // namespace orrery::test
