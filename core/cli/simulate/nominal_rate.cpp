#include "cli/simulate/nominal_rate.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <vector>

#include "config/load.h"
#include "lua/script.h"
#include "run/matrix_rate.h"
#include "sim/cluster/cluster.h"

namespace orrery {
namespace {

std::optional<Cluster> readable_cluster(const std::filesystem::path& file) {
    try {
        Config opened = load_toml(file);
        return Cluster(opened);
    } catch (const Error&) {  // a file of the user's, which `simulate` would refuse
        return std::nullopt;
    }
}

}  // namespace

std::string rate_name(DType type, bool tf32) {
    if (type == DType::f32) return tf32 ? "tf32" : "f32";
    return type == DType::f8e4m3 || type == DType::f8e5m2 ? "fp8" : std::string(name_of(type));
}

double nominal_rate(const std::filesystem::path& folder, std::string_view driver_name, const std::string& rate) {
    std::error_code missing;
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder, missing))
        if (entry.path().extension() == ".toml") files.push_back(entry.path());
    std::ranges::sort(files);
    for (const std::filesystem::path& file : files)
        if (const std::optional<Cluster> cluster = readable_cluster(file))
            for (const NodeKind& kind : cluster->kinds) {
                const Accelerator& one = kind.accelerator;
                if (std::ranges::find(one.driver_names, driver_name) == one.driver_names.end()) continue;
                const auto found = one.dense_flops.find(rate);
                if (found != one.dense_flops.end()) return found->second;
            }
    return 0;
}

double nominal_flops(Device& device, const Program& program, Config& config) {
    const DeviceLimits limits = device.limits();
    if (limits.host_visible) return 0;
    const bool tf32 = config.table("device").table("cuda").flag("tf32", false);
    const std::filesystem::path library = script_library(config.table("lua").text("library", ""));
    return nominal_rate(library.parent_path() / "configs/clusters", limits.name, rate_name(matrix_type(program), tf32));
}

}  // namespace orrery
