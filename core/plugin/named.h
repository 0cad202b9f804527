#pragma once
#include <memory>
#include <string>

#include "orrery/registry.h"
#include "plugin/facts.h"
#include "plugin/open_calls.h"

namespace orrery {

/// Returns the registry `alone` of one plugin with factories changed so that exceptions of the objects that they make
/// name the plugin ("transport/tape"); see call_plugin in base/foreign/plugin_call.h. Calls of a data source are
/// registered in `calls` while they run. `facts` are added to the contract of a transport. Ops are not wrapped: the
/// core calls their functions through call_op (ir/plugin_ops.h).
Registry named(const std::string& plugin, const Registry& alone, const PluginFacts& facts,
               const std::shared_ptr<OpenCalls>& calls);

}  // namespace orrery
