#include "cli/run_record/kept.h"

#include <filesystem>

#include "base/env.h"
#include "base/json.h"
#include "cli/run_record/revision.h"
#include "cli/script_runner.h"
#include "plugin/code_digest.h"
#include "run/control/address.h"
#include "run/session.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Writes a file only if its text has changed.
void keep(const fs::path& file, const std::string& text) {
    const auto env = system_env();
    if (env->exists(file.string()) && env->read_file(file.string()) == text) return;
    env->make_folders(file.parent_path().string());
    env->replace_file(file.string(), text);
}

Json revision_json(const ScriptRunner& script) {
    const auto revision = revision_of(script.script);
    if (!revision) return nullptr;
    return {{"commit", revision->commit}, {"clean", revision->clean ? Json(*revision->clean) : Json(nullptr)}};
}

}  // namespace

void keep_lua(const ScriptRunner& script, const std::string& folder) {
    const std::string text = system_env()->read_file(script.script);
    const fs::path lua = fs::path(folder) / "lua";
    keep(fs::path(folder) / "script.lua", text);
    keep(lua / fs::path(script.script).filename(), text);
    for (const auto& [file, of_module] : script.modules) keep(lua / file, of_module);
}

BitSources code_of(const ScriptRunner& script) {
    const LibraryCode own = this_code();
    BitSources code = {{"liborrery", own.digest, own.path}};
    for (const PluginReport& plugin : script.loader.loaded()) code.push_back({plugin.name, plugin.digest, plugin.path});
    return code;
}

Json start_of(const ScriptRunner& script) {
    Json plugins = Json::array();
    for (const PluginReport& plugin : script.loader.loaded())
        plugins.push_back(
            {{"name", plugin.name}, {"version", plugin.version}, {"digest", plugin.digest}, {"path", plugin.path}});
    return {{"command", script.command.arguments},
            {"script", script.script},
            {"revision", revision_json(script)},
            {"version", ORRERY_VERSION},
            {"abi", describe_abi(this_abi())},
            {"digest", this_code().digest},
            {"plugins", std::move(plugins)},
            {"mesh", script.settings.mesh.text()},
            {"plan", script.compiled().train().fingerprint},
            {"hosts", nullptr}};
}

Json hosts_of(Session& session) {
    const std::string mine = message_text({{"host", host_name()}, {"device", session.device().limits().name}});
    Json hosts = Json::array();
    const auto told = session.to_first("hosts and devices", mine, WaitLimit::step);
    for (size_t rank = 0; rank < told.size(); ++rank) {
        Json one = Json::parse(told[rank]);
        if (hosts.empty() || hosts.back()["host"] != one["host"] || hosts.back()["device"] != one["device"]) {
            one["ranks"] = Json::array();
            hosts.push_back(std::move(one));
        }
        hosts.back()["ranks"].push_back(rank);
    }
    return hosts;
}

}  // namespace orrery
