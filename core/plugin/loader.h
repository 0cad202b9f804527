#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orrery/program.h"
#include "orrery/registry.h"
#include "plugin/facts.h"
#include "plugin/open_calls.h"

namespace orrery {

struct PluginReport {
    std::string name;  ///< name from the file's name: "transport/gloo"
    std::string path;
    std::string version;      ///< version; "" when it cannot be loaded
    std::string reason;       ///< why it cannot be loaded, in several lines; "" when it can
    std::string cannot_run;   ///< why it cannot be used on this machine although it can be loaded; "": it can
    std::string digest = {};  ///< digest of its code (plugin/code_digest.h); "" when it has none
    std::string facts = {};   ///< text of its ORRERY_FACTS; "" when it has none
};

/// Loads plugins: opens liborrery_KIND_NAME.so and calls its register function. A file liborrery_KIND_NAME.why says why
/// the build left the plugin out. Files are opened by full path and never closed, because a plugin's code may run at
/// any later time, for example as the destructor of an exception.
class Loader {
public:
    /// Makes a loader that searches the folders in this order; the first file of a name wins.
    explicit Loader(std::vector<std::string> folders) : folders_(std::move(folders)) {}

    /// Loads the plugin KIND/NAME into the registry, unless it is loaded already. Throws Error at `asked` with the
    /// reason and the remedy, and leaves the registry unchanged.
    void load(std::string_view kind, std::string_view name, Registry& registry, const Origin& asked) const;

    /// Returns the facts of plugin KIND/NAME, read without opening the file as a library. Throws Error at `asked`.
    PluginFacts facts(std::string_view kind, std::string_view name, const Origin& asked) const;

    /// Loads the plugin that defines an op: op/NAME defines the ops NAME and NAME_more. Throws Error at `asked`.
    void load_op(std::string_view op, Registry& registry, const Origin& asked) const;
    /// Loads the plugins of a program's ops that are not registered yet. Skips ops that no plugin defines: checking the
    /// program reports them.
    void load_ops(const Program& program, Registry& registry) const;

    /// Returns the codecs of all plugin files, by name alone: one is loaded into the registry when a program first
    /// names it. Loader and registry must outlive such programs.
    std::vector<std::shared_ptr<const Codec>> codecs(Registry& registry) const;

    /// Returns why plugin KIND/NAME cannot be used on this machine although its file can be loaded; "" when it can be
    /// used or does not exist.
    std::string cannot_run(std::string_view kind, std::string_view name) const;

    /// Returns the function `orrery_device_address` of a device plugin; nullptr if it has none. From a device's options
    /// it returns the PCI address of the device that a rank with them will use, "0000:17:00.0", or "" if not known.
    std::function<std::string(Config&)> device_address(std::string_view name) const;

    /// Returns the names of all plugin files in the folders, "transport/gloo", sorted. Does not load them.
    std::vector<std::string> names() const;

    /// Returns the names of the plugins of one kind, without those that the build left out.
    std::vector<std::string> present(std::string_view kind) const;

    /// Returns name, path and digest of each plugin file in the folders, sorted by name. Does not load them.
    std::vector<PluginReport> files() const;

    /// Loads each plugin file of the folders and returns reports sorted by name, also of those that cannot be loaded.
    std::vector<PluginReport> list() const;

    const std::vector<std::string>& folders() const { return folders_; }
    /// The calls to data sources of plugins that have not returned yet, so that a call that hangs can be reported.
    const std::shared_ptr<OpenCalls>& calls() const { return calls_; }
    /// Name, path, version and digest of the plugins that this loader has loaded, in the order of loading.
    const std::vector<PluginReport>& loaded() const { return loaded_; }

private:
    /// Returns the plugin that defines an op: for swish_gate_grad op/swish_gate_grad, op/swish_gate or op/swish, the
    /// first that exists; "" when none exists.
    std::string plugin_of(std::string_view op) const;

    std::vector<std::string> folders_;
    std::shared_ptr<OpenCalls> calls_ = std::make_shared<OpenCalls>();
    mutable std::vector<PluginReport> loaded_;
};

/// Returns the folders `plugins` (build tree) and `orrery/plugins` (installed) next to liborrery.so, if they exist.
std::vector<std::string> plugin_folders();
/// Returns the folders in plugins.path, followed by those of plugin_folders().
std::vector<std::string> and_plugin_folders(std::vector<std::string> folders);

/// Formats an ABI string for messages: "orrery 7f3a91c0, gcc 12, debug".
std::string describe_abi(std::string_view abi);
std::string_view this_abi();

}  // namespace orrery
