#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/program.h"
#include "orrery/registry.h"
#include "plugin/facts.h"
#include "plugin/open_calls.h"

namespace orrery {

/// What `orrery plugins` prints about one file.
struct PluginReport {
    std::string name;  ///< "transport/gloo", from the file's name
    std::string path;
    std::string version;      ///< "" when it cannot be loaded
    std::string reason;       ///< why it cannot be loaded, in several lines; "" when it can
    std::string cannot_run;   ///< why it cannot be used on this machine although it can be loaded, "" when it can
    std::string digest = {};  ///< digest of its code (plugin/code_digest.h), "" when it has none
    std::string facts = {};   ///< its ORRERY_FACTS, "" when it has none
};

/// Finds liborrery_KIND_NAME.so and calls its register function. A file liborrery_KIND_NAME.why contains the reason why
/// the build left the plugin out. Files are opened by full path and never unloaded, because a plugin's code may be
/// running at any later time, for example as the destructor of an exception.
class Loader {
public:
    /// Searches the folders in this order; the first file of a name wins.
    explicit Loader(std::vector<std::string> folders) : folders_(std::move(folders)) {}

    /// Loads KIND/NAME into the registry; does nothing when it is loaded already. Throws Error at `asked` with the
    /// reason and the remedy, and leaves the registry unchanged.
    void load(std::string_view kind, std::string_view name, Registry& registry, const Origin& asked) const;

    /// The facts of KIND/NAME, read from the file without opening it as a library. Throws Error at `asked`.
    PluginFacts facts(std::string_view kind, std::string_view name, const Origin& asked) const;

    /// Loads the plugin that brings an op: op/NAME brings NAME and NAME_more. Throws Error at `asked`.
    void load_op(std::string_view op, Registry& registry, const Origin& asked) const;
    /// Loads the plugins of all ops of a program that are not registered yet. Skips ops that no plugin brings: the
    /// program's check reports those.
    void load_ops(const Program& program, Registry& registry) const;

    /// Why KIND/NAME cannot be used on this machine although it can be loaded; "" when it can, or when there is no such
    /// plugin.
    std::string cannot_run(std::string_view kind, std::string_view name) const;

    /// "transport/gloo" of every plugin file of the folders, sorted. Loads none.
    std::vector<std::string> names() const;

    /// The names of one kind, without plugins that the build left out.
    std::vector<std::string> present(std::string_view kind) const;

    /// The plugin files of the folders with their digests, sorted by name. Loads none.
    std::vector<PluginReport> files() const;

    /// Every plugin file of the folders, sorted by name. Loads each, to report those that cannot be loaded.
    std::vector<PluginReport> list() const;

    const std::vector<std::string>& folders() const { return folders_; }
    /// Calls of data sources that have not returned.
    const std::shared_ptr<OpenCalls>& calls() const { return calls_; }
    /// The plugins that this loader has loaded, in that order: name, path, version and digest.
    const std::vector<PluginReport>& loaded() const { return loaded_; }

private:
    /// The plugin for swish_gate_grad is op/swish_gate_grad, op/swish_gate or op/swish, the first that exists; "" when
    /// none does.
    std::string plugin_of(std::string_view op) const;

    std::vector<std::string> folders_;
    std::shared_ptr<OpenCalls> calls_ = std::make_shared<OpenCalls>();
    mutable std::vector<PluginReport> loaded_;
};

/// `plugins` next to liborrery.so (build tree) and `orrery/plugins` next to it (installed), where they exist.
std::vector<std::string> plugin_folders();
/// The given folders (plugins.path), followed by `plugin_folders()`.
std::vector<std::string> and_plugin_folders(std::vector<std::string> folders);

/// Formats an ABI string for messages: "orrery 7f3a91c0, gcc 12, debug".
std::string describe_abi(std::string_view abi);
std::string_view this_abi();

}  // namespace orrery
