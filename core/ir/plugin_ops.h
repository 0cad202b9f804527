#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orrery/op.h"
#include "orrery/registry.h"

namespace orrery {

struct PluginOp {
    std::shared_ptr<const OpDef> def;
    std::string plugin, version;  ///< name and version of the plugin: "op/swish_gate", "0.1"
    std::vector<Registry::AddedKernel> kernels;
};

/// Validates what plugin op/NAME registers: names of ops, required members of OpDef, and that kernels are for its own
/// ops. Returns the problem, or "" if all is valid.
std::string problem_of_ops(std::string_view name, const Registry& brought);

/// Adds the ops of a plugin to this process, permanently; programs, plans and devices then find them by name.
/// Thread-safe. Has no effect for the same file again. Throws Error if another file added an op of that name.
void add_plugin_ops(std::string_view plugin, std::string_view version, const Registry& brought);

/// Finds an op of a plugin by name; nullptr if there is none. The pointer stays valid for the life of the process.
const PluginOp* find_plugin_op(std::string_view kind);
/// All ops of plugins, in the order in which they were added.
std::vector<const PluginOp*> plugin_ops();

/// Call it in a catch handler of a function of an op: rethrows the exception. If op `kind` is from a plugin and the
/// exception is not an Error, throws an Error that names the plugin.
[[noreturn]] void throw_of_op(std::string_view kind, std::string_view function);
/// Calls a function ("infer", "rule") of an op's definition. Exceptions of a plugin become an Error that names it.
template <class Call>
decltype(auto) call_op(std::string_view kind, std::string_view function, Call&& call) {
    try {
        return std::forward<Call>(call)();
    } catch (...) {
        throw_of_op(kind, function);
    }
}

/// The kinds of devices for which an op has kernels, as text: "cpu, reference"; "none".
std::string kernels_text(const PluginOp& op);
/// A plugin op's kernel for this kind of device. Throws Error at `asked` if it has none, naming those that it has.
const KernelMaker& kernel_maker(const PluginOp& op, std::string_view device_kind, const Origin& asked);

}  // namespace orrery
