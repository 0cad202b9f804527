#include "run/calibrate/kept_costs.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/hash.h"
#include "base/regular_file.h"
#include "orrery/error.h"

namespace orrery {
namespace {

constexpr size_t most_bytes = size_t{64} << 20;

/// The user's folder of cost tables, in $XDG_CACHE_HOME or ~/.cache; "" if neither is set. Ignores a relative
/// $XDG_CACHE_HOME, as the XDG Base Directory Specification requires.
std::string costs_folder() {
    const char* const given = std::getenv("XDG_CACHE_HOME");
    if (given && *given == '/') return std::string(given) + "/orrery/costs";
    const char* const home = std::getenv("HOME");
    return home && *home == '/' ? std::string(home) + "/.cache/orrery/costs" : "";
}

}  // namespace

std::string kept_costs_path(const std::string& machine) {
    const std::string folder = costs_folder();
    if (folder.empty()) return "";
    return fmt::format("{}/{}.json", folder, sha256(machine_key(machine)).substr(0, 16));
}

bool any_kept_costs() {
    const std::string folder = costs_folder();
    std::error_code ignored;
    return !folder.empty() && std::filesystem::exists(folder, ignored) && !std::filesystem::is_empty(folder, ignored);
}

CostTable read_costs(const std::string& file) {
    const RegularFile found(file);
    if (!found.there()) throw Error(fmt::format("no table of measured costs {}\n  make one: orrery calibrate", file));
    if (!found.problem().empty()) throw Error(fmt::format("{} {}", file, found.problem()));
    return parse_cost_table(found.text(most_bytes), file);
}

std::optional<CostTable> kept_costs(const std::string& machine) {
    const std::string file = kept_costs_path(machine);
    std::error_code ignored;
    if (file.empty() || !std::filesystem::exists(file, ignored)) return std::nullopt;
    return read_costs(file);
}

}  // namespace orrery
