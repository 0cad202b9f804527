#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include "base/text.h"
#include "cli/describe/describe.h"
#include "cli/flags.h"
#include "config/schema.h"
#include "plugin/loader.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

using Texts = std::vector<std::string>;

constexpr const char* files = "//";

Texts plugins_of(std::string_view kind) { return Loader(plugin_folders()).present(kind); }

/// Returns the plugins of the kind that a flag or key names: --device, --transports, run.store.
Texts named_plugins(std::string_view name) {
    name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
    if (name.ends_with('s')) name.remove_suffix(1);
    return plugins_of(name);
}

/// Returns folders of runs in the folder that the word names so far, and, for an empty word, in runs/.
Texts run_folders(const std::string& word) {
    Texts found;
    const std::string folder = word.substr(0, word.rfind('/') + 1);
    for (const std::string& place : {folder, folder.empty() ? "runs/" : folder}) {
        std::error_code none;
        for (const auto& entry : fs::directory_iterator(place.empty() ? "." : place, none))
            if (fs::exists(entry.path() / "run.json", none)) found.push_back(place + entry.path().filename().string());
    }
    return found;
}

Texts keys() {
    std::set<std::string> all = {"script."};
    for (const SchemaKey& key : schema())
        all.insert(std::string(key.table) + "." + (key.key == "*" ? "" : std::string(key.key) + "="));
    return {all.begin(), all.end()};
}

Texts values_of_key(const std::string& table, const std::string& key) {
    const SchemaKey* const known = find_schema(table, key);
    if (!known) return {files};
    if (known->kind == ConfigKind::flag) return {"true", "false"};
    if (!known->one_of.empty()) return split(known->one_of, '|');
    if (known->kind != ConfigKind::text && known->kind != ConfigKind::texts) return {};
    Texts values = table == "run" ? named_plugins(key) : table == "transport.axis" ? plugins_of("transport") : Texts();
    if (table == "run" && key == "launcher") values.insert(values.end(), {std::string(any_launcher), "orrery"});
    return values.empty() ? Texts{files} : values;
}

/// Returns table.key= of --set, or with a value.
Texts settings(const std::string& word) {
    const size_t equals = word.find('='), dot = word.rfind('.', equals);
    if (equals == std::string::npos || dot == std::string::npos) return keys();
    Texts values = values_of_key(word.substr(0, dot), word.substr(dot + 1, equals - dot - 1));
    for (std::string& value : values)
        if (value != files) value = word.substr(0, equals + 1) + value;
    return values;
}

Texts values_of(const Flag& flag, const std::string& word) {
    const Texts names = split(flag.name, ',');
    if (names.back() == "--set") return settings(word);
    if (!flag.check.values.empty()) return flag.check.values;
    if (Texts plugins = named_plugins(names.back()); !plugins.empty()) return plugins;
    if (flag.positional() && (flag.name == "script" || flag.name == "run" || flag.name == "place")) {
        Texts places = run_folders(word);
        places.push_back(files);
        return places;
    }
    return flag.takes_text() ? Texts{files} : Texts();
}

const Flag* flag_called(const std::vector<Flag>& flags, const std::string& name) {
    for (const Flag& flag : flags) {
        const Texts names = split(flag.name, ',');
        if (!flag.positional() && std::find(names.begin(), names.end(), name) != names.end()) return &flag;
    }
    return nullptr;
}

Texts names_of(const std::vector<Command>& commands) {
    Texts names;
    for (const Command& command : commands) names.push_back(command.name);
    return names;
}

/// Returns what may come after `before`, words of a command.
Texts in_command(const Command& command, const Texts& before, const std::string& word) {
    size_t given = 0;  // positional arguments so far
    const Flag* open = nullptr;
    for (const std::string& one : before) {
        if (open) {
            open = nullptr;
        } else if (one.starts_with("-")) {
            const Flag* const flag = flag_called(command.flags, one);
            open = flag && flag->takes_value() ? flag : nullptr;
        } else {
            ++given;
        }
    }
    if (open) return values_of(*open, word);
    if (const size_t equals = word.find('='); word.starts_with("--") && equals != std::string::npos) {
        const Flag* const flag = flag_called(command.flags, word.substr(0, equals));
        Texts values = flag ? values_of(*flag, word.substr(equals + 1)) : Texts();
        for (std::string& value : values)
            if (value != files) value = word.substr(0, equals + 1) + value;
        return values;
    }
    Texts all;
    if (word.starts_with("-")) {
        all.emplace_back("--help");
        for (const Flag& flag : command.flags)
            if (!flag.positional() && !flag.rules.hidden)
                for (const std::string& name : split(flag.name, ',')) all.push_back(name);
        return all;
    }
    for (const Flag& flag : command.flags)
        if (flag.positional() && given-- == 0) return values_of(flag, word);
    return {files};
}

Texts completions(const CommandProgram& program, Texts words) {
    const std::string word = words.back();
    words.pop_back();
    const std::vector<Command>* commands = &program.commands;
    while (!words.empty()) {
        const auto command =
            std::find_if(commands->begin(), commands->end(), [&](const Command& c) { return c.name == words.front(); });
        if (command == commands->end()) return {};
        words.erase(words.begin());
        if (command->commands.empty()) return in_command(*command, words, word);
        commands = &command->commands;
    }
    Texts all = names_of(*commands);
    all.emplace_back("--help");
    if (commands == &program.commands) all.emplace_back("--version");
    return all;
}

}  // namespace

int print_completions(const CommandProgram& program, const std::vector<std::string>& words) {
    if (words.empty()) return 0;
    std::set<std::string> fitting;
    for (std::string& one : completions(program, words))
        if (one == files || one.starts_with(words.back())) fitting.insert(std::move(one));
    for (const std::string& one : fitting) std::printf("%s\n", one.c_str());
    return 0;
}

}  // namespace orrery
