#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/op.h"
#include "orrery/registry.h"

namespace orrery {

/// An op that a plugin added to this process, and the op's kernels.
struct PluginOp {
    std::shared_ptr<const OpDef> def;
    std::string plugin, version;  ///< name and version of the plugin: "op/swish_gate", "0.1"
    std::vector<Registry::AddedKernel> kernels;
};

/// Validates the ops and kernels that plugin op/NAME registers. Returns the problem, or "" if they are valid. Checks op
/// names, the required members of OpDef, and that kernels are for the plugin's own ops.
std::string problem_of_ops(std::string_view name, const Registry& brought);

/// Adds the ops of a plugin to this process, permanently; programs, plans and devices then find them by name.
/// Thread-safe. Has no effect for the same file again. Throws Error if an op of that name is from another file.
void add_plugin_ops(std::string_view plugin, std::string_view version, const Registry& brought);

/// Finds an op of a plugin by name; nullptr if there is none. The pointer stays valid.
const PluginOp* find_plugin_op(std::string_view kind);
/// All ops of plugins, in the order in which they were added.
std::vector<const PluginOp*> plugin_ops();

/// Rethrows the current exception; call it in a handler. If op `kind` is from a plugin, an exception that is not an
/// Error becomes an Error that names the plugin.
[[noreturn]] void throw_of_op(std::string_view kind, std::string_view function);
/// Calls a function ("infer", "rule") of an op's definition, and passes its exceptions through throw_of_op.
template <class Call>
decltype(auto) call_op(std::string_view kind, std::string_view function, Call&& call) {
    try {
        return std::forward<Call>(call)();
    } catch (...) {
        throw_of_op(kind, function);
    }
}

/// The kinds of devices for which a plugin's op has kernels, as text: "cpu, reference"; "none".
std::string kernels_text(const PluginOp& op);
/// The kernel of a plugin's op for this kind of device. Throws Error at `asked`, naming the plugin and its kernels.
const KernelMaker& kernel_maker(const PluginOp& op, std::string_view device_kind, const Origin& asked);

}  // namespace orrery
