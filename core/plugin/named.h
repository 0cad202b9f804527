#pragma once
#include <memory>
#include <string>

#include "orrery/registry.h"
#include "plugin/facts.h"
#include "plugin/open_calls.h"

namespace orrery {

/// Wraps each object that a plugin's factories make, so that its exceptions name the plugin ("transport/tape"); see
/// call_plugin in base/foreign/plugin_call.h. Calls of a data source are registered in `calls` while they run. `facts`
/// are added to the contract of a transport. Ops are not wrapped: the core calls their functions through call_op
/// (ir/plugin_ops.h).
Registry named(const std::string& plugin, const Registry& alone, const PluginFacts& facts,
               const std::shared_ptr<OpenCalls>& calls);

}  // namespace orrery
