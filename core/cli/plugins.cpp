#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/installed.h"
#include "control/wire.h"
#include "ir/op.h"
#include "lua/script.h"
#include "plugin/code_digest.h"
#include "plugin/loader.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Each template scripts/templates/KIND is a complete plugin named "sundial"; .all has files that all kinds share,
/// .init what `orrery init` writes.
constexpr std::string_view model = "sundial", model_type = "Sundial", shared = ".all";

std::string type_name(const std::string& name) {
    std::string type;
    for (const std::string& word : split(name, '_'))
        if (!word.empty()) type += static_cast<char>(word[0] >= 'a' ? word[0] - 'a' + 'A' : word[0]) + word.substr(1);
    return type;
}

std::string renamed(std::string text, const std::string& name) {
    text = replaced(std::move(text), model, name);
    return replaced(std::move(text), model_type, type_name(name));
}

std::vector<std::string> kinds_in(const fs::path& templates) {
    std::vector<std::string> kinds;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(templates, none))
        if (const std::string kind = entry.path().filename(); entry.is_directory() && kind[0] != '.')
            kinds.push_back(kind);
    std::sort(kinds.begin(), kinds.end());
    return kinds;
}

void require_name(const std::string& name) {
    const bool letters = std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
    if (name.empty() || name.size() > 40 || !letters || name[0] < 'a' || name[0] > 'z' || name.back() == '_')
        throw Error(fmt::format(
            "{} is not a valid plugin name\n  expected a lower-case letter, then lower-case letters, digits "
            "and _, at most 40 characters, not ending in _",
            quote(name)));
}

/// Throws Error if scripts cannot call o.op.NAME, or if an op NAME exists without the plugin.
void require_op_name(const std::string& name) {
    static const std::set<std::string> words = {"and",      "break",  "do",   "else", "elseif", "end",  "false", "for",
                                                "function", "goto",   "if",   "in",   "local",  "nil",  "not",   "or",
                                                "repeat",   "return", "then", "true", "until",  "while"};
    if (words.count(name) > 0)
        throw Error(
            fmt::format("{} is a reserved word of Lua, so o.op.{} is a syntax error\n  choose another name for the op",
                        quote(name), name));
    if (find_op_def(name))
        throw Error(fmt::format("{} is already a built-in op\n  choose another name for the new op", quote(name)));
}

void tell_next(const NewPluginCommand& command, const fs::path& folder, const fs::path& library) {
    const std::string place = folder.string();
    if (!fs::exists(folder / "CMakeLists.txt")) {
        std::printf("test it with\n  sh %s/test.sh orrery\n", place.c_str());
        return;
    }
    std::string prefix = "$HOME/orrery";
    if (const std::string text = library.string(); text.ends_with("/share/orrery/scripts"))
        prefix = library.parent_path().parent_path().parent_path().string();
    else
        std::printf(
            "a plugin is built against an installed orrery; in the source tree:\n"
            "  cmake --install build --prefix \"$HOME/orrery\"\n");
    std::printf(
        "build and test it with\n  cmake -S %s -B %s/build -DCMAKE_PREFIX_PATH=\"%s\"\n"
        "  cmake --build %s/build\n  ctest --test-dir %s/build --output-on-failure\n",
        place.c_str(), place.c_str(), prefix.c_str(), place.c_str(), place.c_str());
    std::printf("a run loads it with --set 'plugins.path=[\"%s/build/plugins\"]', under the name %s %s\n",
                place.c_str(), command.kind.c_str(), command.name.c_str());
}

}  // namespace

int new_plugin_command(const NewPluginCommand& command) {
    const fs::path library = script_library("");
    const fs::path templates = library / "templates";
    const std::vector<std::string> kinds = kinds_in(templates);
    if (std::find(kinds.begin(), kinds.end(), command.kind) == kinds.end())
        throw Error(fmt::format("no kind of plugin {}{}", quote(command.kind), choices("kinds", command.kind, kinds)));
    require_name(command.name);
    if (command.kind == "op") require_op_name(command.name);
    const fs::path folder = command.folder.empty() ? command.name : command.folder;
    make_new_folder(folder, fmt::format("orrery new-plugin {} {} FOLDER", command.kind, command.name));
    std::set<std::string> names;
    for (const fs::path& from : {templates / shared, templates / command.kind})
        for (const auto& entry : fs::directory_iterator(from)) {
            const std::string name = replaced(entry.path().filename().string(), model, command.name);
            write_new(folder / name, renamed(installed_text(entry.path()), command.name));
            names.insert(name);
        }
    std::printf("%s: %s\n", folder.string().c_str(), join({names.begin(), names.end()}, " ").c_str());
    tell_next(command, folder, library);
    return 0;
}

std::string version_text() {
    const LibraryCode own = this_code();
    std::string text = fmt::format("orrery {}\n{}\nrendezvous protocol {}\ncode of:", ORRERY_VERSION,
                                   describe_abi(this_abi()), wire::magic[6]);
    const auto line = [&](const std::string& name, const std::string& digest, const std::string& path) {
        text += fmt::format("\n  {:24} {:40} {}", name, digest.empty() ? "none" : digest, path);
    };
    line("liborrery", own.digest, own.path);
    for (const PluginReport& plugin : Loader(plugin_folders()).files()) line(plugin.name, plugin.digest, plugin.path);
    return text;
}

int plugins_command(const std::vector<std::string>& more) {
    const std::vector<std::string> folders = and_plugin_folders(more);
    const Loader loader(folders);
    std::printf("plugins of %s\n", std::string(describe_abi(this_abi())).c_str());
    for (const PluginReport& report : loader.list()) {
        const auto facts = [&] {
            if (!report.facts.empty()) std::printf("      facts: %s\n", report.facts.c_str());
        };
        if (report.reason.empty()) {
            std::printf("  %-24s %-8s %-12.12s %s\n", report.name.c_str(), report.version.c_str(),
                        report.digest.c_str(), report.path.c_str());
            if (!report.cannot_run.empty()) std::printf("      cannot run here: %s\n", report.cannot_run.c_str());
            facts();
            continue;
        }
        std::printf("  %-24s cannot be used\n", report.name.c_str());
        for (const std::string& line : split(report.reason, '\n')) std::printf("      %s\n", line.c_str());
        facts();
    }
    std::printf("looked in %s\n", join(folders, ", ").c_str());
    return 0;
}

}  // namespace orrery
