#include "chosen.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <memory>

#include "base/text.h"
#include "config/load.h"

namespace orrery::suites {

namespace {

/// No exception: Catch2 asks for the plugins where it can take none.
[[noreturn]] void refuse(const std::string& why) {
    fmt::print(stderr, "conformance: {}\n", why);
    std::exit(2);
}

std::string text_of(const char* variable) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? "" : text;
}

std::string variable_of(std::string_view kind) {
    std::string name = "ORRERY_CONFORMANCE_";
    for (const char letter : kind) name += static_cast<char>(std::toupper(letter));
    return kind == "data" || kind == "rendezvous" ? name : name + "S";
}

std::string name_of(const PluginReport& plugin) { return plugin.name.substr(plugin.name.find('/') + 1); }

}  // namespace

std::vector<std::string> chosen(std::string_view kind) {
    const std::string names = text_of(variable_of(kind).c_str());
    return names.empty() ? std::vector<std::string>() : split(names, ',');
}

std::vector<std::string> folders() {
    const std::string folder = text_of("ORRERY_CONFORMANCE_PLUGINS");
    return and_plugin_folders(folder.empty() ? std::vector<std::string>() : std::vector<std::string>{folder});
}

std::vector<PluginReport> plugins(std::string_view kind) {
    const Loader loader(folders());
    const std::vector<std::string> wanted = chosen(kind);
    std::vector<PluginReport> all;
    for (const std::string& plugin : loader.names()) {  // none of another kind is loaded
        if (!plugin.starts_with(fmt::format("{}/", kind))) continue;
        const std::string name = plugin.substr(kind.size() + 1);
        if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
        PluginReport& report = all.emplace_back(PluginReport{plugin, "", "", "", ""});
        try {
            Registry registry;
            loader.load(kind, name, registry, {});
            report.cannot_run = loader.cannot_run(kind, name);
        } catch (const Error& error) {
            report.reason = error.what();
        }
    }
    for (const std::string& name : wanted) {
        const auto found =
            std::find_if(all.begin(), all.end(), [&](const PluginReport& plugin) { return name_of(plugin) == name; });
        if (found == all.end())
            refuse(fmt::format("no {} {} in {}\n  set ORRERY_CONFORMANCE_PLUGINS to the folder of liborrery_{}_{}.so",
                               kind, name, fmt::join(loader.folders(), ", "), kind, name));
        if (!found->reason.empty()) refuse(fmt::format("{} cannot be loaded: {}", found->name, found->reason));
    }
    return all;
}

std::vector<std::string> usable(std::string_view kind) {
    static std::map<std::string, std::vector<std::string>, std::less<>> known;
    const auto [names, is_new] = known.try_emplace(std::string(kind));
    if (!is_new) return names->second;
    for (const PluginReport& plugin : plugins(kind)) {
        const std::string& why = plugin.reason.empty() ? plugin.cannot_run : plugin.reason;
        if (why.empty())
            names->second.push_back(name_of(plugin));
        else
            fmt::print("{} is not tested: {}\n", plugin.name, why);
    }
    if (names->second.empty()) refuse(fmt::format("there is no {} to test", kind));
    return names->second;
}

const Registry& loaded(std::string_view kind, const std::string& name) {
    static auto& all = *new std::map<std::string, std::unique_ptr<Registry>>;
    std::unique_ptr<Registry>& registry = all[fmt::format("{}/{}", kind, name)];
    if (!registry) {
        registry = std::make_unique<Registry>();
        Loader(folders()).load(kind, name, *registry, {});
    }
    return *registry;
}

Config settings(std::string_view kind, const std::string& name) {
    const std::string file = text_of("ORRERY_CONFORMANCE_CONFIG");
    if (file.empty()) return Config(fmt::format("{}.{}", kind, name));
    try {
        Config all = load_toml(file);
        Config& table = all.table(kind);
        return kind == "data" ? table : table.table(name);
    } catch (const Error& error) {
        refuse(error.what());
    }
}

Scratch::Scratch() {
    std::string folder = (std::filesystem::temp_directory_path() / "orrery-conformance-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw Error("no folder can be made in " + folder, Fault::failed);
    parent_ = folder;
    path = parent_ / "place";
}

Scratch::~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(parent_, ignored);
}

}  // namespace orrery::suites
