#pragma once
#include <cstdint>
#include <string>

#include "orrery/api.h"
#include "orrery/registry.h"

/// ORRERY_ABI is made by CMake from the public headers, compiler, string ABI, build type and sanitizer.
#ifndef ORRERY_ABI
#error "ORRERY_ABI is not defined: build plugins with orrery_plugin() of the Orrery CMake package"
#endif

namespace orrery {

/// All that a plugin exports, as the symbol `orrery_plugin`. Plain data, so that it can be read before it is trusted.
struct PluginInfo {
    uint32_t size;     ///< sizeof(PluginInfo)
    const char* abi;   ///< ORRERY_ABI of the build
    const char* name;  ///< "transport.gloo"
    const char* version;
    void (*add_to)(Registry&);  ///< registers one thing under that name
    /// Why what it registers cannot run on this machine ("no GPU: ..."), "" when it can. It may still be asked for its
    /// contract, so that plans can be checked here. nullptr: it always can.
    std::string (*cannot_run)();
};

}  // namespace orrery

/// Exports a plugin. `register_fn` is `void(orrery::Registry&)`. The ABI is also the name of an ELF section, so that a
/// stale file is refused before any of its code runs.
#define ORRERY_PLUGIN(plugin_name, plugin_version, register_fn) \
    ORRERY_PLUGIN_IF(plugin_name, plugin_version, register_fn, nullptr)

/// The same for what needs a machine of its own kind: `cannot_run_fn` is `std::string()`.
#define ORRERY_PLUGIN_IF(plugin_name, plugin_version, register_fn, cannot_run_fn)                         \
    extern "C" ORRERY_API const orrery::PluginInfo orrery_plugin;                                         \
    extern "C" const orrery::PluginInfo orrery_plugin{                                                    \
        sizeof(orrery::PluginInfo), ORRERY_ABI, plugin_name, plugin_version, register_fn, cannot_run_fn}; \
    [[gnu::used, gnu::section(".orrery." ORRERY_ABI)]] static const char orrery_abi_mark = 1

/// Facts that core reads from the plugin's file without opening it: words with spaces between them, NAME or
/// NAME=VALUE,VALUE. Each kind has its own (core/plugin/facts.h); a transport must give `devices`.
#define ORRERY_FACTS(text) [[gnu::used, gnu::section(".orrery_facts")]] static const char orrery_facts[] = text
