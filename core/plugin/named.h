#pragma once
#include <memory>
#include <string>

#include "orrery/registry.h"
#include "plugin/facts.h"
#include "plugin/open_calls.h"

namespace orrery {

/// Returns `alone`, the registry of one plugin, with other factories: exceptions of the objects that they make name the
/// plugin, "transport/tape" (call_plugin in base/foreign/plugin_call.h). A data source's calls are listed in `calls`
/// while they run. A transport's contract also has `facts`. Ops are not wrapped: the core calls their functions through
/// call_op (ir/plugin_ops.h).
Registry named(const std::string& plugin, const Registry& alone, const PluginFacts& facts,
               const std::shared_ptr<OpenCalls>& calls);

}  // namespace orrery
