#include "run/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/limits.h"
#include "base/processors.h"
#include "base/text.h"
#include "orrery/error.h"
#include "orrery/rendezvous.h"

namespace orrery {
namespace {

Mesh read_mesh(Config& table) {
    constexpr int64_t most = int64_t{1} << 20;  // max number of ranks: some lists have an entry for each
    std::vector<Axis> axes;
    int64_t ranks = 1;
    for (const std::string& name : table.keys()) {
        axes.push_back({name, table.integer(name, 1), false});
        const int64_t size = axes.back().size;
        if (size > most || (size > 0 && (ranks *= size) > most))
            throw Error(table.where(name), fmt::format("mesh.{} = {}: the mesh has more than {} ranks\n  choose "
                                                       "smaller axes",
                                                       name, size, most));
    }
    try {
        return Mesh(std::move(axes));
    } catch (const Error& error) {
        throw Error(table.origin(), error.what());
    }
}

/// Reads a configuration table that maps mesh axes to names. Throws Error for an axis that the mesh lacks.
std::map<std::string, std::string> by_axis(Config& table, const Mesh& mesh) {
    std::map<std::string, std::string> names;
    for (const std::string& axis : table.keys()) {
        names[axis] = table.require_text(axis);
        if (axis.find('+') != std::string::npos)
            throw Error(table.where(axis),
                        fmt::format("{}.\"{}\": joined axes cannot be set; axes with the same "
                                    "transport are joined automatically\n  set its axes one by one: {}",
                                    table.path(), axis, join(split(axis, '+'), ", ")));
        if (!mesh.find(axis))
            throw Error(table.where(axis), fmt::format("{0}.{1}: the mesh has no axis \"{1}\" ({2})\n"
                                                       "  add {1} to [mesh] or remove this line",
                                                       table.path(), axis, mesh.text()));
    }
    return names;
}

void read_saves(Config& table, Settings& settings) {
    settings.async_saves = table.flag("async", false);
    settings.suspect_factor = table.number("suspect_factor", 0);
    if (settings.suspect_factor > 0 && settings.suspect_factor <= 1)
        throw Error(table.where("suspect_factor"),
                    fmt::format("checkpoint.suspect_factor = {}: a normal loss may be that much above the median\n  "
                                "set it above 1, or to 0 to mark a step only when the next loss is not finite",
                                settings.suspect_factor));
    settings.drop = table.texts("drop");
    settings.auto_saves = table.text("every", "") == "auto";
    if (table.has("mtbf_days")) {
        const double days = table.number("mtbf_days", 0);
        if (!(days > 0))
            throw Error(table.where("mtbf_days"), fmt::format("checkpoint.mtbf_days = {}: expected more than 0", days));
        settings.node_mtbf_s = 86400 * days;
    }
    if (!settings.auto_saves) return;
    if (const int64_t every = table.integer("every_steps", 0); every > 0)
        throw Error(
            table.where("every"),
            fmt::format(
                "checkpoint.every = \"auto\" and checkpoint.every_steps = {} both set how often to save\n  leave "
                "one of them out",
                every));
    if (settings.node_mtbf_s == 0)
        throw Error(table.where("every"),
                    "checkpoint.every = \"auto\" needs the failure rate of nodes, which is not set\n  set "
                    "checkpoint.mtbf_days (1000 over the failures_per_1000_node_days of configs/clusters), or "
                    "checkpoint.every_steps instead of every");
}

/// Repeats for the table what the plugin declared of its copy.
void declare(const Config& options, Config& table) {
    options.reject_unused();
    for (const auto& [key, value] : options.items())
        if (value.per_host && table.find(key)) table.of_host(key);
}

}  // namespace

const std::string& Settings::transport_of(const std::string& axis) const {
    const auto found = axis_transport.find(axis);
    return found == axis_transport.end() ? transport : found->second;
}

std::optional<Ports> ports_of(Config& config) {
    Config& run = config.table("run");
    const std::string text = run.text("ports", "");
    if (text.empty()) return std::nullopt;
    Ports ports;
    int end = 0;
    const bool range = std::sscanf(text.c_str(), "%5d-%5d%n", &ports.first, &ports.last, &end) == 2 && end > 0 &&
                       static_cast<size_t>(end) == text.size();
    if (range && ports.first >= 1 && ports.first <= ports.last && ports.last <= 65535) return ports;
    throw Error(
        run.where("ports"),
        fmt::format("run.ports = \"{}\": expected FIRST-LAST, ports from 1 to 65535, as \"29501-29600\"", text));
}

Config with_ports(Config& config, const Config& table) {
    Config options = table;
    Config& run = config.table("run");
    if (const std::string ports = run.text("ports", ""); !ports.empty())
        options.set("ports", {ports, run.where("ports"), true});
    return options;
}

// Fallback values below are empty, because every configuration includes the schema's defaults.

Settings read_settings(Config& config) {
    Settings settings;
    Config& run = config.table("run");
    settings.device = run.text("device", "");
    settings.transport = run.text("transport", "");
    settings.store = run.text("store", "");
    settings.rendezvous = run.text("rendezvous", "");
    settings.launcher = run.text("launcher", "");
    settings.folder = run.text("folder", "");
    settings.seed = static_cast<uint64_t>(run.integer("seed", 0));
    settings.ranks = run.integer("ranks", 0);
    settings.threads_per_rank = run.integer("threads_per_rank", 0);
    settings.pin_ranks = run.flag("pin_ranks", false);
    const std::string overlap = run.text("overlap", "");
    settings.overlap = overlap == "on" ? Overlap::on : overlap == "off" ? Overlap::off : Overlap::automatic;
    settings.trace = run.text("trace", "");
    settings.trace_step = run.integer("trace_step", 0);
    settings.costs = config.table("simulate").text("table", "");
    const auto seconds = [&](const char* key, double otherwise = 0) {
        return std::chrono::milliseconds(static_cast<int64_t>(std::min(run.number(key, otherwise), 1e9) * 1000));
    };
    settings.join_timeout = seconds("join_timeout_s");
    settings.silence = seconds("silence_s");
    settings.timeout_given = run.has("timeout_s");
    settings.timeout = seconds("timeout_s", 30);
    settings.grace_s = run.number("grace_s", 0);
    settings.output_all = run.text("output", "") == "all";
    settings.notice_file = run.text("notice_file", "");
    ports_of(config);  // throws if it is not a range
    settings.disk_timeout_s = run.number("disk_timeout_s", 0);
    const std::string resume = run.text("resume", "");
    settings.resume = resume == "never" ? Resume::never : resume == "required" ? Resume::required : Resume::automatic;
    settings.mesh = read_mesh(config.table("mesh"));
    Config& device = config.table("device");
    Config& backend = device.table(settings.device);
    if (backend.has("threads"))
        throw Error(backend.where("threads"),
                    fmt::format("{}.threads is not supported: the threads of a rank are part of its plan\n  set "
                                "run.threads_per_rank instead",
                                backend.path()));
    settings.memory_bytes = static_cast<int64_t>(device.number("memory_gib", 0) * (int64_t{1} << 30));
    settings.tensorboard = config.table("metrics").flag("tensorboard", false);
    settings.prometheus = config.table("metrics").text("prometheus", "");
    settings.keep = read_retention(config);
    read_saves(config.table("checkpoint"), settings);
    settings.weights = config.table("checkpoint").text("load", "");
    settings.axis_transport = by_axis(config.table("transport").table("axis"), settings.mesh);
    settings.collectives = by_axis(config.table("collectives"), settings.mesh);
    return settings;
}

Origin transport_origin(const Settings& settings, Config& config, const std::string& axis) {
    return settings.axis_transport.count(axis) > 0 ? config.table("transport").table("axis").where(axis)
                                                   : config.table("run").where("transport");
}

RetentionPolicy read_retention(Config& config) {
    Config& table = config.table("checkpoint");
    RetentionPolicy keep = table.integer("keep", 0);
    keep.every_steps = table.integer("keep_every_steps", 0);
    keep.hourly = table.integer("keep_hourly", 0);
    keep.daily = table.integer("keep_daily", 0);
    keep.best = table.integer("keep_best", 0);
    return keep;
}

SampleOptions read_sample(Config& config) {
    Config& table = config.table("sample");
    SampleOptions options;
    options.prompt = table.text("prompt", "");
    options.tokens = table.integer("tokens", 0);
    options.temperature = table.number("temperature", 0);
    options.top_k = table.integer("top_k", 0);
    options.seed = static_cast<uint64_t>(config.table("run").integer("seed", 0));
    return options;
}

int64_t ranks_per_host(const Settings& settings, Config& config, int64_t hosts) {
    const int64_t all = settings.mesh.ranks();
    const std::string mesh = settings.mesh.axes().empty() ? "is empty" : settings.mesh.text();
    const std::string whole = fmt::format("[mesh] {} has {} rank{}", mesh, all, all == 1 ? "" : "s");
    if (settings.ranks > 0) {
        const bool fits = hosts > 0 ? settings.ranks * hosts == all : all % settings.ranks == 0;
        if (fits) return settings.ranks;
        const std::string on = hosts > 1 ? fmt::format(" on each of {} hosts", hosts) : "";
        throw Error(config.table("run").where("ranks"),
                    fmt::format("run.ranks = {}{}, but {}\n  change one of them, set --nodes to the number of hosts, "
                                "or leave run.ranks out",
                                settings.ranks, on, whole));
    }
    if (hosts > 1 && all % hosts != 0)
        throw Error(config.table("mesh").origin(),
                    fmt::format("{}, which are not divisible by {} hosts\n  change [mesh] or --nodes", whole, hosts));
    return all / std::max<int64_t>(1, hosts);
}

void check_resume(const Settings& settings, Config& config, CheckpointStore& store, bool fresh) {
    const Origin where = config.table("run").where("resume");
    if (settings.resume == Resume::required && fresh)
        throw Error(where,
                    "run.resume = \"required\" needs a checkpoint, but --fresh starts over: leave one of them out");
    if (settings.resume == Resume::automatic || fresh) return;
    const std::vector<int64_t> steps = store.steps();
    if (settings.resume == Resume::never && !steps.empty())
        throw Error(
            where,
            fmt::format("run.resume = \"never\", but {} holds a checkpoint of step {}\n  start over with --fresh, "
                        "choose another run.folder, or set run.resume to \"auto\"",
                        store.place(), steps.front()));
    if (settings.resume == Resume::required && steps.empty())
        throw Error(where,
                    fmt::format("run.resume = \"required\", but {} holds no checkpoint\n  check run.folder, or set "
                                "run.resume to \"auto\" for a new run",
                                store.place()));
}

Config device_options(const Settings& settings, Config& config, const Job& job) {
    Config options = config.table("device").table(settings.device);  // a copy: the run's configuration must not change
    if (!options.has("threads"))
        options.set("threads",
                    {int64_t{threads_of(settings, job)}, config.table("run").where("threads_per_rank"), true});
    options.set("local_rank", {job.local_rank, {}, true});
    options.set("local_ranks", {job.assigned ? job.local_ranks : 1, {}, true});
    options.set("own_environment", {job.assigned && !job.ours, {}, true});
    return options;
}

std::unique_ptr<Device> make_device(const Settings& settings, Config& config, const Registry& registry,
                                    const Job& job) {
    Config options = device_options(settings, config, job);
    auto device = registry.device(settings.device, config.table("run").where("device"))(options);
    options.reject_unused();
    return device;
}

std::unique_ptr<RendezvousBackend> make_rendezvous(const std::string& name, Config& config, const Registry& registry) {
    Config& table = config.table("rendezvous").table(name);
    Config options = with_ports(config, table);
    auto backend = registry.rendezvous(name, config.table("run").where("rendezvous"))(options);
    declare(options, table);
    return backend;
}

std::unique_ptr<Transport> make_transport(const std::string& name, const Origin& asked, Config& config,
                                          const Registry& registry) {
    Config& table = config.table("transport").table(name);
    Config options = with_ports(config, table);
    auto transport = registry.transport(name, asked)(options);
    declare(options, table);
    return transport;
}

int threads_of(const Settings& settings, const Job& job) {
    if (settings.threads_per_rank > 0) return static_cast<int>(settings.threads_per_rank);
    const auto allowed = usable_processors();
    if (job.threads > 0) return static_cast<int>(std::min(job.threads, allowed));
    return static_cast<int>(std::max<int64_t>(1, allowed / std::max<int64_t>(1, job.local_ranks)));
}

bool serves(const TransportContract& contract, std::string_view device) {
    return std::find(contract.devices.begin(), contract.devices.end(), device) != contract.devices.end();
}

void need_descriptors(const Mesh& mesh, const std::set<std::string>& joined) {
    constexpr int64_t least = 40, each_axis = 16, each_peer = 3;  // open files: basis, per axis, per peer (as for ucx)
    int64_t count = least;
    const auto add = [&](const Axis& axis) {
        if (axis.size > 1) count += each_axis + each_peer * (axis.size - 1);
    };
    for (const Axis& axis : mesh.axes()) add(axis);
    for (const std::string& name : joined) add(mesh.axis(mesh.over(name).value()));
    need_descriptors(count, fmt::format("a rank of mesh {}", mesh.text()));
}

void refuse_apart(const Settings& settings, Config& config, const Network& contracts, int64_t per_host) {
    const Mesh& mesh = settings.mesh;
    for (const auto& [axis, contract] : contracts) {
        if (!contract.same_host) continue;
        for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
            const std::vector<int64_t> members = mesh.group(rank, *mesh.find(axis));
            const auto away = std::find_if(members.begin(), members.end(),
                                           [&](int64_t other) { return other / per_host != rank / per_host; });
            if (away == members.end()) continue;
            throw Error(
                transport_origin(settings, config, axis),
                fmt::format("transport {} connects ranks on one host only; with {} on each host, ranks {} and {} of "
                            "axis {} are on different hosts\n  use a transport between hosts (gloo, ucx) for this "
                            "axis, in run.transport or transport.axis.{}, or change [mesh]",
                            settings.transport_of(axis), per_host, rank, *away, axis, axis));
        }
    }
}

Network contracts_of(Settings& settings, Config& config, const Registry& registry) {
    Network contracts;
    for (const Axis& axis : settings.mesh.axes()) {
        if (axis.size == 1) continue;
        const std::string& name = settings.transport_of(axis.name);
        const Origin asked = transport_origin(settings, config, axis.name);
        const auto made = make_transport(name, asked, config, registry);
        const TransportContract contract = made->contract();
        if (!serves(contract, settings.memory()) && !contract.staging)
            throw Error(asked,
                        fmt::format("transport \"{}\" supports the memory of {}, not that of device \"{}\"\n"
                                    "  use a transport that does, or one that stages through host memory (gloo, ucx)",
                                    name, fmt::join(contract.devices, ", "), settings.device));
        contracts[axis.name] = contract;
    }
    return contracts;
}

}  // namespace orrery
