#include "cli/run_record/kept.h"

#include <filesystem>
#include <map>

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

/// The Lua files of a run: text by path in lua/.
std::map<std::string, std::string> lua_of(const ScriptRunner& script) {
    std::map<std::string, std::string> files = script.modules;
    files[fs::path(script.script).filename()] = system_env()->read_file(script.script);
    return files;
}

bool is_kept(const fs::path& file, const std::string& text) {
    const auto env = system_env();
    return env->exists(file.string()) && env->read_file(file.string()) == text;
}

void keep(const fs::path& file, const std::string& text) {
    if (is_kept(file, text)) return;
    const auto env = system_env();
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
    const auto files = lua_of(script);
    keep(fs::path(folder) / "script.lua", files.at(fs::path(script.script).filename()));
    for (const auto& [file, text] : files) keep(fs::path(folder) / "lua" / file, text);
}

std::vector<std::string> changed_lua(const ScriptRunner& script, const std::string& folder) {
    std::vector<std::string> changed;
    for (const auto& [file, text] : lua_of(script))
        if (!is_kept(fs::path(folder) / "lua" / file, text)) changed.push_back(file);
    return changed;
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
