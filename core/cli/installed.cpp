#include "cli/installed.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "lua/script.h"
#include "orrery/error.h"

namespace orrery {

namespace fs = std::filesystem;

fs::path manual_folder() {
    const fs::path library = script_library("");
    for (const fs::path& folder : {library.parent_path() / "manual", library / "manual"})
        if (fs::is_directory(folder)) return folder;
    return {};
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
        text.replace(at, what.size(), by);
    return text;
}

std::string installed_text(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    if (!file) throw Error(fmt::format("cannot read {}, a file of the installation", path.string()), Fault::failed);
    return text.str();
}

void make_new_folder(const fs::path& folder, std::string_view instead) {
    if (fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder)))
        throw Error(fmt::format("{} exists and is not empty; nothing was written\n  choose another folder: {}",
                                folder.string(), instead));
    fs::create_directories(folder);
}

void write_new(const fs::path& path, std::string_view text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) throw Error(fmt::format("cannot write {}", path.string()), Fault::failed);
}

}  // namespace orrery
