#include "ir/plugin_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <shared_mutex>

#include "base/foreign/plugin_call.h"
#include "base/text.h"
#include "ir/op.h"
#include "ir/signature.h"

namespace orrery {

namespace {

/// All ops of plugins in this process. None is removed, as plugins stay loaded.
struct Table {
    std::shared_mutex mutex;
    std::deque<PluginOp> ops;

    const PluginOp* find(std::string_view kind) const {
        const auto found =
            std::find_if(ops.begin(), ops.end(), [&](const PluginOp& op) { return op.def->name == kind; });
        return found == ops.end() ? nullptr : &*found;
    }
};

Table& table() {
    static Table all;
    return all;
}

bool is_word(std::string_view name) {
    return !name.empty() && name[0] >= 'a' && name[0] <= 'z' && std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
}

bool is_op_of(std::string_view op, std::string_view plugin) {
    return op == plugin || (op.starts_with(plugin) && op.substr(plugin.size()).starts_with('_'));
}

std::string problem_of(const OpDef& def) {
    if (!is_word(def.name))
        return fmt::format("invalid name {} of an op: only a-z, 0-9 and _ are allowed", quote(def.name));
    for (const OpDef* own : own_ops())
        if (own->name == def.name)
            return fmt::format("duplicate op {}: it is a built-in op; rename the op of the plugin", def.name);
    if (!def.infer || !def.rule || !def.flops)
        return fmt::format("the op {} lacks {}", def.name, !def.infer ? "infer" : !def.rule ? "rule" : "flops");
    if (def.operands.empty())
        return fmt::format("the op {} has no operands: it needs at least one, since scripts call it on a value",
                           def.name);
    if (const std::string problem = problem_of_types(def); !problem.empty()) return problem;
    for (const AttributeDef& attribute : def.attributes)
        if (set_by_passes(attribute.name))
            return fmt::format("the op {} has an attribute {}, which is reserved for compiler passes", def.name,
                               attribute.name);
    if (def.collective || def.alias)
        return fmt::format("the op {} sets {}, which is only supported for ops without a kernel", def.name,
                           def.collective ? "collective" : "alias");
    return "";
}

bool same_code(const OpDef& a, const OpDef& b) {
    return a.infer == b.infer && a.rule == b.rule && a.gradient == b.gradient && a.decompose == b.decompose &&
           a.flops == b.flops;
}

}  // namespace

std::string problem_of_ops(std::string_view name, const Registry& brought) {
    bool own = false;
    for (const auto& def : brought.ops()) {
        own = own || def->name == name;
        if (!is_op_of(def->name, name))
            return fmt::format("it registers the op {0}, but ops of plugin op/{1} must be named {1} or {1}_SUFFIX",
                               def->name, name);
        if (const std::string problem = problem_of(*def); !problem.empty()) return problem;
    }
    if (!own) return fmt::format("it registers no op {}", name);
    for (const Registry::AddedKernel& kernel : brought.kernels()) {
        const bool known = std::any_of(brought.ops().begin(), brought.ops().end(),
                                       [&](const auto& def) { return def->name == kernel.op; });
        if (!known)
            return fmt::format("it registers a kernel of {}, which is not an op of this plugin", quote(kernel.op));
        if (!kernel.make || !is_word(kernel.device_kind))
            return fmt::format("its kernel of {} for device {} has {}", kernel.op, quote(kernel.device_kind),
                               kernel.make ? "an invalid name of the device" : "a null function");
    }
    return "";
}

void add_plugin_ops(std::string_view plugin, std::string_view version, const Registry& brought) {
    Table& all = table();
    const std::unique_lock lock(all.mutex);
    size_t known = 0;
    for (const auto& def : brought.ops()) {
        const PluginOp* other = all.find(def->name);
        if (!other) continue;
        if (other->plugin != plugin || other->version != version || !same_code(*other->def, *def))
            throw Error(
                fmt::format("duplicate op {}: already registered by {} {}\n  a process takes an op from one file: "
                            "name only one of both files in plugins.path",
                            def->name, other->plugin, other->version));
        ++known;
    }
    if (known == brought.ops().size()) return;
    for (const auto& def : brought.ops()) {
        PluginOp op{def, std::string(plugin), std::string(version), {}};
        for (const Registry::AddedKernel& kernel : brought.kernels())
            if (kernel.op == def->name) op.kernels.push_back(kernel);
        all.ops.push_back(std::move(op));
    }
}

const PluginOp* find_plugin_op(std::string_view kind) {
    Table& all = table();
    const std::shared_lock lock(all.mutex);
    return all.find(kind);
}

void throw_of_op(std::string_view kind, std::string_view function) {
    const PluginOp* op = find_plugin_op(kind);
    if (!op) throw;
    throw_of_plugin(op->plugin, fmt::format("{} of {}", function, kind));
}

std::vector<const PluginOp*> plugin_ops() {
    Table& all = table();
    const std::shared_lock lock(all.mutex);
    std::vector<const PluginOp*> ops;
    for (const PluginOp& op : all.ops) ops.push_back(&op);
    return ops;
}

std::string kernels_text(const PluginOp& op) {
    std::vector<std::string> kinds;
    for (const Registry::AddedKernel& kernel : op.kernels) kinds.push_back(kernel.device_kind);
    std::sort(kinds.begin(), kinds.end());
    return kinds.empty() ? "none" : join(kinds, ", ");
}

const KernelMaker& kernel_maker(const PluginOp& op, std::string_view device_kind, const Origin& asked) {
    for (const Registry::AddedKernel& kernel : op.kernels)
        if (kernel.device_kind == device_kind) return kernel.make;
    throw Error(asked,
                fmt::format("op {0} of plugin {1} {2} has no kernel for device {3}; kernels of it: {4}\n  take one of "
                            "these devices, or add one to the plugin: add_kernel(\"{0}\", \"{3}\", ...)",
                            op.def->name, op.plugin, op.version, device_kind, kernels_text(op)));
}

std::optional<OpKernel> plugin_kernel(const KernelSpec& spec, std::string_view device_kind, int threads) {
    const PluginOp* op = find_plugin_op(spec.op);
    if (!op) return std::nullopt;
    const KernelMaker& make = kernel_maker(*op, device_kind, {});
    if (const std::string wrong = wrong_operands(spec); !wrong.empty()) throw Error(wrong);
    return make(spec, threads);
}

}  // namespace orrery
