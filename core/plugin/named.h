#pragma once
#include <memory>
#include <string>

#include "orrery/registry.h"
#include "plugin/facts.h"
#include "plugin/open_calls.h"

namespace orrery {

/// The same plugin, whose exceptions name it: each object that a factory makes is wrapped in one that calls it by
/// `call_plugin` (base/foreign/plugin_call.h). `plugin`: "transport/tape". Calls of a data source are in `calls` while
/// they last. Ops stay as they are: the core calls their functions by `call_op` (ir/plugin_ops.h).
/// The contract of a transport has its facts.
Registry named(const std::string& plugin, const Registry& alone, const PluginFacts& facts,
               const std::shared_ptr<OpenCalls>& calls);

}  // namespace orrery
