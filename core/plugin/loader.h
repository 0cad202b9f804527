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

/// What `orrery plugins` says of one file.
struct PluginReport {
    std::string name;  ///< "transport/gloo", after the file's name
    std::string path;
    std::string version;      ///< "" when it cannot be loaded
    std::string reason;       ///< why it cannot be loaded, "" when it can; several lines
    std::string cannot_run;   ///< it can be loaded, but not used on this machine, and why
    std::string digest = {};  ///< of its code (plugin/code_digest.h), "": it has none
    std::string facts = {};   ///< its ORRERY_FACTS, "": it has none
};

/// Finds liborrery_KIND_NAME.so and lets it register; liborrery_KIND_NAME.why says why the build left it out. Files are
/// opened by full path only, and never unloaded: code of a plugin may be running, or be the destructor of an exception,
/// at any later time.
class Loader {
public:
    /// Looks in these folders, the first that has the file wins.
    explicit Loader(std::vector<std::string> folders) : folders_(std::move(folders)) {}

    /// Loads KIND/NAME into the registry; does nothing when it is there already. Throws Error at `asked` with the
    /// reason and the remedy, and leaves the registry as it was.
    void load(std::string_view kind, std::string_view name, Registry& registry, const Origin& asked) const;

    /// The facts of KIND/NAME, whose file is read and not opened. Throws Error at `asked`.
    PluginFacts facts(std::string_view kind, std::string_view name, const Origin& asked) const;

    /// Loads the plugin that brings an op: op/NAME brings NAME and NAME_more. Throws Error at `asked`.
    void load_op(std::string_view op, Registry& registry, const Origin& asked) const;
    /// The same for each op of a program that nobody has brought yet, where there is a plugin that may: the program's
    /// check names the others.
    void load_ops(const Program& program, Registry& registry) const;

    /// Why KIND/NAME, which can be loaded, cannot be used on this machine; "" when it can, or is no plugin.
    std::string cannot_run(std::string_view kind, std::string_view name) const;

    /// "transport/gloo" of every plugin file of the folders, sorted. Loads none.
    std::vector<std::string> names() const;

    /// The names of a kind alone, without those that the build left out.
    std::vector<std::string> present(std::string_view kind) const;

    /// The files of the folders, sorted by name, with their digests alone. Loads none.
    std::vector<PluginReport> files() const;

    /// Every plugin file of the folders, sorted by name. Loads each to tell whether it can be.
    std::vector<PluginReport> list() const;

    const std::vector<std::string>& folders() const { return folders_; }
    /// Calls of its data sources that have not returned.
    const std::shared_ptr<OpenCalls>& calls() const { return calls_; }
    /// What it has put into registries, in that order: name, path, version and digest.
    const std::vector<PluginReport>& loaded() const { return loaded_; }

private:
    /// Of swish_gate_grad: swish_gate_grad, swish_gate or swish, the first that there is; "".
    std::string plugin_of(std::string_view op) const;

    std::vector<std::string> folders_;
    std::shared_ptr<OpenCalls> calls_ = std::make_shared<OpenCalls>();
    mutable std::vector<PluginReport> loaded_;
};

/// `plugins` beside liborrery.so (build tree) or `orrery/plugins` beside it (installed), whichever exist.
std::vector<std::string> plugin_folders();
/// These, as plugins.path gives them, and then `plugin_folders`.
std::vector<std::string> and_plugin_folders(std::vector<std::string> folders);

/// "orrery 7f3a91c0, gcc 12, debug": an ABI string for people.
std::string describe_abi(std::string_view abi);
/// The ABI string of this build.
std::string_view this_abi();

}  // namespace orrery
