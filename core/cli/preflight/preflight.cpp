#include "cli/preflight/preflight.h"

#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/processors.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/host_limits.h"
#include "cli/launch.h"
#include "cli/launchers.h"
#include "cli/preflight/cluster_figures.h"
#include "cli/tell.h"
#include "config/load.h"
#include "config/toml_text.h"
#include "plugin/loader.h"
#include "run/control/job.h"
#include "run/settings.h"

namespace orrery {
namespace {

constexpr auto usual_timeout = std::chrono::seconds(60);
constexpr double shared_share = 0.3;  ///< below this share of the others' median, a rank that shares processors is slow
constexpr int64_t most_ranks = 4096;

struct Expectable {
    const char* name;
    double ExpectedFigures::*part;
    double unit;
};
constexpr Expectable expectable[] = {
    {"matrix_f32_tflops", &ExpectedFigures::matrix_f32, 1e12},
    {"matrix_bf16_tflops", &ExpectedFigures::matrix_bf16, 1e12},
    {"memory_gb_s", &ExpectedFigures::memory_bytes, 1e9},
    {"node_link_gb_s", &ExpectedFigures::node_link_bytes, 1e9},
    {"fabric_gb_s", &ExpectedFigures::fabric_bytes, 1e9},
    {"storage_write_gb_s", &ExpectedFigures::storage_write_bytes, 1e9},
    {"storage_read_gb_s", &ExpectedFigures::storage_read_bytes, 1e9},
};

void refuse_idle_sets(const std::vector<std::string>& sets) {
    for (const std::string& set : sets) {
        constexpr std::string_view tables[] = {"run.", "transport.", "device.", "plugins.", "mesh."};
        const bool read = std::any_of(std::begin(tables), std::end(tables),
                                      [&](std::string_view table) { return set.starts_with(table); });
        if (!read || set.starts_with("transport.axis."))
            throw Error("--set " + set +
                        ": a preflight does not read this\n  it reads run.KEY, mesh.AXIS, transport.NAME.KEY, "
                        "device.NAME.KEY and plugins.path");
    }
}

Config read_config(const PreflightCommand& command) {
    refuse_idle_sets(command.sets);
    std::vector<std::string> sets = command.sets;
    const auto add = [&](const char* key, const std::optional<std::string>& value) {
        if (value) sets.push_back(fmt::format("run.{}={}", key, toml_string(*value)));
    };
    add("device", command.device);
    add("transport", command.transport);
    return load_config(command.config, sets);
}

struct Backends {
    Config config;
    Settings settings;
    Loader loader{{}};
    Registry registry;
    std::unique_ptr<Transport> transport;  ///< nullptr in a job of one rank
};

void load(const Loader& loader, Backends& backends, const char* kind, const std::string& name) {
    const Origin asked = backends.config.table("run").where(kind);
    loader.load(kind, name, backends.registry, asked);
    if (const std::string why = loader.cannot_run(kind, name); !why.empty())
        throw Error(asked, fmt::format("preflight: {} {} cannot run on this host: {}", kind, name, why));
}

/// Loads plugins and opens the transport. `several`: more than one host. Throws Error for an invalid configuration.
std::unique_ptr<Backends> open_backends(const PreflightCommand& command, int64_t ranks, bool several) {
    auto made = std::make_unique<Backends>();
    made->config = read_config(command);
    made->settings = read_settings(made->config);
    const Loader& loader = made->loader = Loader(and_plugin_folders(made->config.table("plugins").texts("path")));
    check_backends(made->config, loader.names());
    load(loader, *made, "device", made->settings.device);
    made->settings.device_memory = loader.facts("device", made->settings.device, {}).of_device().memory;
    if (ranks == 1) return made;
    const std::string& name = made->settings.transport;
    const Origin asked = made->config.table("run").where("transport");
    load(loader, *made, "transport", name);
    made->transport = make_transport(name, asked, made->config, made->registry);
    const TransportContract contract = made->transport->contract();
    if (contract.same_process)
        throw Error(asked, fmt::format("preflight: transport {} runs ranks as threads, and preflight measures between "
                                       "processes\n  use a transport between processes, for example shm or gloo",
                                       name));
    if (contract.same_host && several)
        throw Error(asked,
                    fmt::format("preflight: transport {} connects ranks on one host only, and these ranks are "
                                "on several hosts\n  use a transport between hosts, for example --transport gloo",
                                name));
    if (!serves(contract, made->settings.memory()) && !contract.staging)
        throw Error(asked, fmt::format("preflight: transport {} supports the memory of {}, not that of device {}\n"
                                       "  use a transport that supports it, or one that stages through host memory "
                                       "(gloo, ucx)",
                                       name, fmt::join(contract.devices, ", "), made->settings.device));
    return made;
}

double usual_seconds(const PreflightOptions& options, int64_t ranks) {
    constexpr double storage_s = 2;
    const double once = 2 * options.rank.matrix_s + options.rank.copy_s + storage_s;
    const double pairs =
        static_cast<double>(ranks * (ranks - 1) / 2) * (4 * options.pair.repeats * options.pair.message_s + 0.05);
    const double links = ranks == 1 ? 0 : std::min(options.pair.limit_s, pairs) + 5 * 10 * options.collective.call_s;
    return (once + links) * (1 + options.again);
}

PreflightOptions options_of(const PreflightCommand& command, const Settings& settings) {
    PreflightOptions options = command.quick ? quick_preflight() : PreflightOptions{};
    options.rank.folder = command.folder.value_or(settings.folder.empty() ? "." : settings.folder);
    return options;
}

ExpectedFigures expected_by(const PreflightCommand& command) {
    if (command.cluster.empty()) return read_expected(command.expect);
    Config file = load_toml(command.cluster);
    return read_expected(command.expect, figures_of(Cluster(file)));
}

PreflightReport measure(const PreflightCommand& command, Backends& backends, const Job& job, Rendezvous* rendezvous) {
    const PreflightOptions options = options_of(command, backends.settings);
    const auto device = make_device(backends.settings, backends.config, backends.registry, job);
    PreflightRank rank{
        *device, backends.settings.memory(), backends.transport.get(), rendezvous, job.rank, job.ranks, job.local_rank};
    // Ranks of Orrery's launcher that have fewer processors than threads take turns on all processors.
    const int64_t threads = threads_of(backends.settings, job);
    if (job.ours && job.processors < threads && device->limits().host_visible)
        rank.at_once = std::max<int64_t>(1, usable_processors() / threads);
    rank.timeout = backends.settings.timeout_given ? backends.settings.timeout : usual_timeout;
    if (job.rank == 0) {
        const std::string over = job.ranks == 1 ? "" : " over " + backends.settings.transport;
        std::fprintf(stderr, "preflight of %s%s, device %s, storage in %s; takes about %.0f s if nothing fails\n",
                     plural(job.ranks, "rank").c_str(), over.c_str(), backends.settings.device.c_str(),
                     options.rank.folder.c_str(), usual_seconds(options, job.ranks) / (1 + options.again) + 1);
        if (::isatty(2)) rank.stage = [](const std::string& what) { std::fprintf(stderr, "  %s ...\n", what.c_str()); };
    }
    PreflightBars bars = usual_bars(device->limits().host_visible);
    if (rank.at_once > 0) bars.share = shared_share;
    if (rank.at_once > 0 && job.rank == 0)
        std::fprintf(stderr,
                     "%s on this host share %lld processors: results vary, so bounds for slow parts are wider\n",
                     plural(job.local_ranks, "rank").c_str(), static_cast<long long>(usable_processors()));
    if (command.slow) {
        bars.share = *command.slow;
        bars.storage_share = std::min(bars.storage_share, *command.slow);
        bars.latency_share = std::min(bars.latency_share, *command.slow);
    }
    const ExpectedFigures expected = expected_by(command);
    PreflightReport report = preflight(rank, options, expected, bars);
    report.expected = expected;
    report.bars = bars;
    report.expected_from = command.cluster;
    if (!command.expect.empty()) report.expected_from += report.expected_from.empty() ? "--expect" : ", --expect";
    return report;
}

int print(const PreflightCommand& command, const PreflightReport& report) {
    std::fputs((command.json ? preflight_json(report) : preflight_text(report)).c_str(), stdout);
    std::fflush(stdout);
    return report.fit() ? 0 : 1;
}

/// Waits until rank 0 has printed: once a rank exits with 1, the launcher soon kills the others.
void wait_for_print(Rendezvous& rendezvous, bool first) {
    const std::string key = "preflight/printed";
    if (first) return rendezvous.set(key, "");
    try {
        rendezvous.get(key, usual_timeout);
    } catch (const Error&) {  // rank 0 has ended; its printed report is the same as this rank's
    }
}

int run_rank(const PreflightCommand& command, const Job& job) {
    const auto meeting = meeting_of([&] { return read_config(command); });
    return measuring_rank(job, *meeting, [&](Rendezvous& rendezvous) {
        const auto backends = open_backends(command, job.ranks, job.local_ranks < job.ranks);
        const PreflightReport report = measure(command, *backends, job, &rendezvous);
        if (job.rank == 0) print(command, report);
        wait_for_print(rendezvous, job.rank == 0);
        return report.fit() ? 0 : 1;
    });
}

ScriptCommand hosts_of(const PreflightCommand& command) {
    ScriptCommand hosts;
    hosts.script = "preflight";
    hosts.nodes = command.nodes;
    hosts.node_rank = command.node_rank;
    hosts.rendezvous = command.rendezvous;
    hosts.arguments = command.arguments;
    return hosts;
}

int launched(const PreflightCommand& command, const Job& job) {
    if (job.ours) {
        watch_lifeline();
        return run_rank(command, job);
    }
    refuse_launch_flags(hosts_of(command), job);
    if (command.ranks && *command.ranks != job.ranks)
        throw Error(fmt::format("preflight: --ranks {}, but {} has started {}\n  leave --ranks out", *command.ranks,
                                job.launcher, plural(job.ranks, "rank")));
    if (job.ranks > 1) return run_rank(command, job);
    const auto backends = open_backends(command, 1, false);
    return print(command, measure(command, *backends, job, nullptr));
}

void check_flags(const PreflightCommand& command) {
    expected_by(command);
    if (command.slow && !(*command.slow > 0 && *command.slow < 1))
        throw Error(fmt::format("--slow {}: expected a fraction of the median of the other ranks, between 0 and 1",
                                *command.slow));
    if (command.ranks && (*command.ranks < 1 || *command.ranks > most_ranks))
        throw Error(fmt::format("preflight: --ranks {}: expected 1 to {}", *command.ranks, most_ranks));
    if (command.folder && command.folder->empty()) throw Error("--folder: expected the name of a folder");
}

}  // namespace

std::vector<std::string> expected_names() {
    std::vector<std::string> names;
    for (const Expectable& one : expectable) names.emplace_back(one.name);
    return names;
}

std::vector<std::pair<std::string, double>> named(const ExpectedFigures& figures) {
    std::vector<std::pair<std::string, double>> all;
    for (const Expectable& one : expectable) all.emplace_back(one.name, figures.*one.part);
    return all;
}

ExpectedFigures read_expected(const std::vector<std::string>& texts, ExpectedFigures figures) {
    for (const std::string& text : texts) {
        const size_t sign = text.find('=');
        const std::string name = text.substr(0, sign);
        const auto found = std::find_if(std::begin(expectable), std::end(expectable),
                                        [&](const Expectable& one) { return name == one.name; });
        if (found == std::end(expectable))
            throw Error(
                fmt::format("--expect {}: unknown quantity{}", text, choices("there are", name, expected_names())));
        const std::string_view number = sign == std::string::npos ? "" : std::string_view(text).substr(sign + 1);
        double value = 0;
        const auto [end, fault] = std::from_chars(number.data(), number.data() + number.size(), value);
        if (fault != std::errc() || end != number.data() + number.size() || !(value > 0) || std::isinf(value))
            throw Error(fmt::format("--expect {}: expected {}=NUMBER, with a number above 0", text, name));
        figures.*found->part = value * found->unit;
        std::erase_if(figures.unsaid, [&](const auto& one) { return one.part == found->part; });
    }
    return figures;
}

int preflight_command(const PreflightCommand& command) {
    check_flags(command);
    const Job job = job_from_environment([&] { return launchers_of([&] { return read_config(command); }); });
    if (!job.ours && job.local_rank == 0) tell_quota();
    await_name(job, false);
    if (job.assigned) return launched(command, job);
    const ScriptCommand hosts = hosts_of(command);
    check_nodes(hosts);
    int64_t ranks = command.ranks.value_or(0);
    if (ranks == 0) {
        Config config = read_config(command);
        const int64_t mesh = read_settings(config).mesh.ranks();
        ranks = mesh > 1 ? mesh : std::max<int64_t>(2, command.nodes);
    }
    if (ranks > most_ranks)
        throw Error(fmt::format("preflight: the mesh has {} ranks; expected 1 to {}", ranks, most_ranks));
    const auto backends = open_backends(command, ranks, command.nodes > 1);
    if (ranks == 1 && command.nodes == 1) return print(command, measure(command, *backends, job, nullptr));
    LaunchSpec spec = over_hosts(hosts, ranks);
    place_ranks(spec, backends->settings, backends->config, backends->loader);
    if (command.nodes == 1) tell_nodes_left_out(backends->config);
    spec.meeting = meeting_by(backends->config);
    return launch_meeting(std::move(spec), command.node_rank, [] {});
}

}  // namespace orrery
