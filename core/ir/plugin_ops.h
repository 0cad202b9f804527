#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/op.h"
#include "orrery/registry.h"

namespace orrery {

/// An op that a plugin added to this process.
struct PluginOp {
    std::shared_ptr<const OpDef> def;
    std::string plugin, version;  ///< "op/swish_gate", "0.1"
    std::vector<Registry::AddedKernel> kernels;
};

/// Validates the ops and kernels that the plugin op/NAME registers. Returns the problem, or "" when they are valid.
/// Checks op names, the required members of OpDef, and that kernels are of the plugin's own ops.
std::string problem_of_ops(std::string_view name, const Registry& brought);

/// Adds the ops of a plugin to this process, permanently; programs, plans and devices then find them by name.
/// Thread-safe; the same file again has no effect. Throws Error when an op of that name is from another file.
void add_plugin_ops(std::string_view plugin, std::string_view version, const Registry& brought);

/// Finds an op of a plugin by name; nullptr when there is none. The pointer stays valid.
const PluginOp* find_plugin_op(std::string_view kind);
/// All ops of plugins, in the order in which they were added.
std::vector<const PluginOp*> plugin_ops();

/// Rethrows the current exception; call it in a handler. For an op of a plugin, an exception that is not an Error
/// becomes an Error that names the plugin.
[[noreturn]] void throw_of_op(std::string_view kind, std::string_view function);
/// Calls a function of an op's definition ("infer", "rule") and passes its exceptions through throw_of_op.
template <class Call>
decltype(auto) call_op(std::string_view kind, std::string_view function, Call&& call) {
    try {
        return std::forward<Call>(call)();
    } catch (...) {
        throw_of_op(kind, function);
    }
}

/// The kinds of devices that the op has kernels for: "cpu, reference"; "none".
std::string kernels_text(const PluginOp& op);
/// The op's kernel for this kind of device. Throws Error at `asked` naming the plugin and the available kernels.
const KernelMaker& kernel_maker(const PluginOp& op, std::string_view device_kind, const Origin& asked);

}  // namespace orrery
