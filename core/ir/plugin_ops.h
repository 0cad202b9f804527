#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/op.h"
#include "orrery/registry.h"

namespace orrery {

/// An op that a plugin brought into this process.
struct PluginOp {
    std::shared_ptr<const OpDef> def;
    std::string plugin, version;  ///< "op/swish_gate", "0.1"
    std::vector<Registry::AddedKernel> kernels;
};

/// Why these cannot be the ops and kernels of op/NAME, "" where they can: names, what every op must have, kernels of
/// other ops.
std::string problem_of_ops(std::string_view name, const Registry& brought);

/// Makes the ops of a plugin known to the process, for good: programs, plans and devices find them by name. Threads may
/// be ranks that each load the plugin: what is there already from the same file is left as it is. Throws Error where an
/// op of the name is there from elsewhere.
void add_plugin_ops(std::string_view plugin, std::string_view version, const Registry& brought);

/// nullptr: no plugin has brought one of this name. Stays where it is.
const PluginOp* find_plugin_op(std::string_view kind);
/// In the order in which they came.
std::vector<const PluginOp*> plugin_ops();

/// In a handler: throws on what an op's function has thrown; what is no Error names the plugin, where one brought the
/// op.
[[noreturn]] void throw_of_op(std::string_view kind, std::string_view function);
/// Calls a function of an op's definition ("infer", "rule").
template <class Call>
decltype(auto) call_op(std::string_view kind, std::string_view function, Call&& call) {
    try {
        return std::forward<Call>(call)();
    } catch (...) {
        throw_of_op(kind, function);
    }
}

/// "cpu, reference": the kinds of devices for which the op has kernels; "none".
std::string kernels_text(const PluginOp& op);
/// Throws Error at `asked` where a device of this kind finds no kernel of the op: who brought it, and what there is.
const KernelMaker& kernel_maker(const PluginOp& op, std::string_view device_kind, const Origin& asked);

}  // namespace orrery
