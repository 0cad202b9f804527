#pragma once
#include <cstdint>
#include <string>

#include "orrery/api.h"
#include "orrery/registry.h"

/// CMake computes ORRERY_ABI from the public headers, compiler, string ABI, build type and sanitizer.
#ifndef ORRERY_ABI
#error "ORRERY_ABI is not defined: build plugins with orrery_plugin() of the Orrery CMake package"
#endif

namespace orrery {

/// What a plugin exports as the symbol `orrery_plugin`: plain data, which is read before any of its code runs.
struct PluginInfo {
    uint32_t size;     ///< sizeof(PluginInfo)
    const char* abi;   ///< ORRERY_ABI when the plugin was built
    const char* name;  ///< "transport.gloo"
    const char* version;
    void (*add_to)(Registry&);  ///< adds the plugin's factory (of a device, a transport, ...) to a registry
    /// Returns why the plugin cannot run on this machine ("no GPU: ..."), "" when it can. Its contract may still be
    /// used to check plans on this machine. nullptr: it can always run.
    std::string (*cannot_run)();
};

}  // namespace orrery

/// Exports a plugin. `register_fn` is `void(orrery::Registry&)`. The ABI is also the name of an ELF section, so that a
/// file of another ABI is refused before any of its code runs.
#define ORRERY_PLUGIN(plugin_name, plugin_version, register_fn) \
    ORRERY_PLUGIN_IF(plugin_name, plugin_version, register_fn, nullptr)

/// Exports a plugin that may not run on every machine; `cannot_run_fn` is PluginInfo::cannot_run.
#define ORRERY_PLUGIN_IF(plugin_name, plugin_version, register_fn, cannot_run_fn)                         \
    extern "C" ORRERY_API const orrery::PluginInfo orrery_plugin;                                         \
    extern "C" const orrery::PluginInfo orrery_plugin{                                                    \
        sizeof(orrery::PluginInfo), ORRERY_ABI, plugin_name, plugin_version, register_fn, cannot_run_fn}; \
    [[gnu::used, gnu::section(".orrery." ORRERY_ABI)]] static const char orrery_abi_mark = 1

/// Facts that core reads from the file of a plugin without opening it: words separated by spaces, NAME or
/// NAME=VALUE,VALUE. Each kind has its own facts (core/plugin/facts.h); a transport must give `devices`.
#define ORRERY_FACTS(text) [[gnu::used, gnu::section(".orrery_facts")]] static const char orrery_facts[] = text
