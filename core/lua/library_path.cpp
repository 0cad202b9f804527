#include <dlfcn.h>
#include <fmt/format.h>

#include "base/text.h"
#include "lua/script.h"
#include "orrery/api.h"

namespace orrery {

namespace {

/// Returns the path of the file with this code: liborrery.so, or the program that is linked with it.
std::filesystem::path own_file() {
    Dl_info info;
    if (!dladdr(reinterpret_cast<void*>(&own_file), &info) || !info.dli_fname) return {};
    std::error_code error;
    const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
    return error ? std::filesystem::canonical("/proc/self/exe", error) : file;
}

}  // namespace

std::filesystem::path script_library(const std::string& configured) {
    std::vector<std::filesystem::path> tried;
    if (!configured.empty()) {
        tried.emplace_back(configured);
    } else {
        // Tries the parents of liborrery.so: it is in build/ of the source tree, or in lib/ or lib/TRIPLE of a prefix.
        std::filesystem::path folder = own_file().parent_path();
        for (int up = 0; up < 4 && !folder.empty(); ++up) {
            tried.push_back(folder / "share/orrery/scripts");
            tried.push_back(folder / "scripts");
            if (folder == folder.root_path()) break;
            folder = folder.parent_path();
        }
    }
    std::vector<std::string> names;
    for (const std::filesystem::path& place : tried) {
        if (std::filesystem::is_regular_file(place / "orrery/init.lua")) return place;
        names.push_back(place.string());
    }
    throw Error(
        fmt::format("script library not found: none of these folders has orrery/init.lua\n  {}\n  name its folder with "
                    "--set lua.library=FOLDER",
                    join(names, "\n  ")));
}

}  // namespace orrery
