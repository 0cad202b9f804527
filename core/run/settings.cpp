#include "run/settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/processors.h"
#include "orrery/error.h"

namespace orrery {
namespace {

int64_t at_least(Config& table, const char* key, int64_t fallback, int64_t least) {
    const int64_t value = table.integer(key, fallback);
    if (value < least)
        throw Error(table.where(key), fmt::format("{}.{} = {}: expected {} or more", table.path(), key, value, least));
    return value;
}

Mesh read_mesh(Config& table) {
    std::vector<Axis> axes;
    for (const std::string& name : table.keys()) axes.push_back({name, at_least(table, name.c_str(), 1, 1), false});
    try {
        return Mesh(std::move(axes));
    } catch (const Error& error) {
        throw Error(table.origin(), error.what());
    }
}

}  // namespace

namespace {

/// A table from axes of the mesh to names.
std::map<std::string, std::string> by_axis(Config& table, const Mesh& mesh) {
    std::map<std::string, std::string> names;
    for (const std::string& axis : table.keys()) {
        names[axis] = table.require_text(axis);
        if (!mesh.find(axis))
            throw Error(table.where(axis), fmt::format("{0}.{1}: the mesh has no axis \"{1}\" ({2})\n"
                                                       "  add {1} to [mesh] or remove this line",
                                                       table.path(), axis, mesh.text()));
    }
    return names;
}

}  // namespace

const std::string& Settings::transport_of(const std::string& axis) const {
    const auto found = axis_transport.find(axis);
    return found == axis_transport.end() ? transport : found->second;
}

Settings read_settings(Config& config) {
    Settings settings;
    Config& run = config.table("run");
    settings.device = run.text("device", settings.device);
    settings.transport = run.text("transport", settings.transport);
    settings.store = run.text("store", settings.store);
    settings.folder = run.text("folder", "");
    settings.seed = static_cast<uint64_t>(at_least(run, "seed", 1, 0));
    settings.threads_per_rank = at_least(run, "threads_per_rank", 0, 0);
    settings.pin_ranks = run.flag("pin_ranks", true);
    settings.timeout_given = run.has("timeout_s");
    const double timeout_s = run.number("timeout_s", 30);
    if (timeout_s <= 0)
        throw Error(run.where("timeout_s"), fmt::format("run.timeout_s = {}: expected more than 0", timeout_s));
    settings.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000));
    settings.mesh = read_mesh(config.table("mesh"));
    Config& device = config.table("device");
    Config& backend = device.table(settings.device);
    if (backend.has("threads"))
        throw Error(backend.where("threads"),
                    fmt::format("{}.threads: the threads of a rank are part of its plan\n  set run.threads_per_rank",
                                backend.path()));
    const double memory_gib = device.number("memory_gib", 0);
    if (memory_gib < 0)
        throw Error(device.where("memory_gib"), fmt::format("device.memory_gib = {}: expected 0 or more", memory_gib));
    settings.memory_bytes = static_cast<int64_t>(memory_gib * (int64_t{1} << 30));
    settings.keep = at_least(config.table("checkpoint"), "keep", 2, 2);
    settings.weights = config.table("checkpoint").text("load", "");
    settings.axis_transport = by_axis(config.table("transport").table("axis"), settings.mesh);
    Config& collectives = config.table("collectives");
    settings.collectives = by_axis(collectives, settings.mesh);
    if (!settings.collectives.empty() && settings.device != "cpu")
        throw Error(collectives.origin(), fmt::format("[collectives] moves host memory; device \"{}\" has its own\n"
                                                      "  remove the table or run on device = \"cpu\"",
                                                      settings.device));
    return settings;
}

Origin transport_origin(const Settings& settings, Config& config, const std::string& axis) {
    return settings.axis_transport.count(axis) > 0 ? config.table("transport").table("axis").where(axis)
                                                   : config.table("run").where("transport");
}

int threads_of(const Settings& settings, const Job& job) {
    if (settings.threads_per_rank > 0) return static_cast<int>(settings.threads_per_rank);
    const auto allowed = static_cast<int64_t>(allowed_processors().size());
    if (job.threads > 0) return static_cast<int>(std::min(job.threads, allowed));
    return static_cast<int>(std::max<int64_t>(1, allowed / std::max<int64_t>(1, job.local_ranks)));
}

bool serves(const TransportContract& contract, std::string_view device) {
    return std::find(contract.devices.begin(), contract.devices.end(), device) != contract.devices.end();
}

std::map<std::string, TransportContract> contracts_of(Settings& settings, Config& config, const Registry& registry) {
    std::map<std::string, TransportContract> contracts;
    for (const Axis& axis : settings.mesh.axes()) {
        if (axis.size == 1) continue;
        const std::string& name = settings.transport_of(axis.name);
        const Origin asked = transport_origin(settings, config, axis.name);
        Config& options = config.table("transport").table(name);
        const auto made = registry.transport(name, asked)(options);
        options.reject_unused();
        const TransportContract contract = made->contract();
        if (!serves(contract, settings.device) && !contract.staging)
            throw Error(asked, fmt::format("transport \"{}\" serves the memory of {}, not that of device \"{}\"\n"
                                           "  take one that does, or one that stages it (gloo, ucx)",
                                           name, fmt::join(contract.devices, ", "), settings.device));
        contracts[axis.name] = contract;
    }
    return contracts;
}

}  // namespace orrery
