#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/regular_file.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/installed.h"
#include "config/toml_text.h"
#include "lua/script.h"
#include "orrery/error.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// The templates are a complete experiment named "sundial" on text.txt.
constexpr std::string_view example = "sundial", text_name = "text.txt";

void require_experiment_name(const std::string& name) {
    const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
    if (name.empty() || name.size() > 40 || !plain || name[0] == '-')
        throw Error(
            fmt::format("{} is not a valid name of an experiment\n  expected letters, digits, _ and -, at most 40, not "
                        "beginning with -",
                        quote(name)));
}

/// Returns the absolute path of the user's text.
std::string given_text(const std::string& path) {
    const RegularFile file(path);
    if (!file.problem().empty()) throw Error(fmt::format("--data {} {}", path, file.problem()));
    if (file.bytes() == 0) throw Error(fmt::format("--data {} is empty, expected a text to train on", path));
    return fs::canonical(path);
}

std::string manual_text() {
    const fs::path folder = manual_folder();
    std::vector<fs::path> pages;
    if (!folder.empty())
        for (const auto& entry : fs::directory_iterator(folder))
            if (entry.path().extension() == ".md") pages.push_back(entry.path());
    if (pages.empty())
        throw Error(
            "the manual, which is the example's text, was not found: it is share/orrery/manual of an installed prefix\n"
            "  install it, or name another text: --data FILE");
    std::sort(pages.begin(), pages.end());
    std::string text;
    for (const fs::path& page : pages) text += installed_text(page);
    return text;
}

std::string without_row_of(std::string_view file, const std::string& text) {
    std::string rest;
    for (const std::string& line : split(text, '\n'))
        if (!line.starts_with(fmt::format("| {} |", file))) rest += line + "\n";
    rest.pop_back();
    return rest;
}

}  // namespace

int init_command(const InitCommand& command) {
    const fs::path folder = (fs::path(command.folder) / "").lexically_normal().parent_path();
    const std::string name = folder.filename();
    require_experiment_name(name);
    const fs::path library = script_library("");
    const std::string data = command.data.empty() ? "" : given_text(command.data);
    const std::string text = data.empty() ? manual_text() : "";
    make_new_folder(folder, "orrery init FOLDER");
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(library / "templates" / ".init")) {
        const std::string file = entry.path().filename();
        std::string written = replaced(installed_text(entry.path()), example, name);
        if (file == ".luarc.json") written = replaced(written, "\"../..\"", toml_string(library.string()));
        if (!data.empty()) {
            written = without_row_of(text_name, written);
            written = replaced(written, "path = " + toml_string(text_name), "path = " + toml_string(data));
        }
        write_new(folder / file, written);
        names.push_back(file);
    }
    if (data.empty()) {
        write_new(folder / text_name, text);
        names.emplace_back(text_name);
    }
    std::sort(names.begin(), names.end());
    std::printf("%s: %s\ntrain with\n  cd %s\n  orrery run train.lua --config laptop.toml\nREADME.md there says more\n",
                folder.c_str(), join(names, " ").c_str(), folder.c_str());
    return 0;
}

}  // namespace orrery
