#include "cli/bench/bench_collectives.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <span>

#include <fmt/format.h>

#include "base/suggest.h"
#include "base/text.h"
#include "cli/bench/bench_rows.h"
#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/launchers.h"
#include "cli/tell.h"
#include "config/load.h"
#include "plugin/loader.h"
#include "run/control/job.h"

namespace orrery {

namespace {

constexpr auto limit = std::chrono::seconds(60);

struct Backends {
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Device> device;
};

/// Opens transport and device. `rank`: the rank that this process is, pinned before the device counts processors if the
/// transport wants it. Throws Error for unknown keys of [device.cpu] and [transport.NAME].
Backends open_backends(const CollectiveBench& bench, Config& config, const Job* rank = nullptr) {
    const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
    check_backends(config, loader.names());
    Registry registry;
    loader.load("device", "cpu", registry, {});
    loader.load("transport", bench.transport, registry, {});
    Config& processor = config.table("device").table("cpu");
    Config& transports = config.table("transport");
    Config& mine = transports.table(bench.transport);
    Backends backends{registry.transport(bench.transport, {})(mine), nullptr};
    if (rank) pin_rank(*rank, backends.transport->contract());
    backends.device = registry.device("cpu", {})(processor);
    processor.reject_unused();
    mine.reject_unused();
    // Tables of all other transports are checked too, so that typos in them are reported.
    for (const std::string& name : transports.keys()) {
        const bool is_table = std::holds_alternative<std::shared_ptr<Config>>(transports.find(name)->data);
        if (!is_table || name == "axis" || name == bench.transport) continue;
        Config& options = transports.table(name);
        try {
            loader.load("transport", name, registry, options.origin());
        } catch (const Error&) {
            continue;  // the table's transport is for another machine
        }
        if (!loader.cannot_run("transport", name).empty()) continue;
        registry.transport(name, options.origin())(options);
        options.reject_unused();
    }
    return backends;
}

void refuse_places(const CollectiveBench& bench, const Transport& transport, bool several) {
    if (transport.contract().same_process)
        throw Error(
            fmt::format("bench: transport {} runs ranks as threads, and bench measures between processes\n"
                        "  use a transport between processes, for example --transport shm or gloo",
                        bench.transport));
    if (several && transport.contract().same_host)
        throw Error(
            fmt::format("bench: transport {} connects ranks on one host only, and these ranks are on several hosts\n"
                        "  use a transport between hosts, for example --transport gloo",
                        bench.transport));
}

void print_head(const CollectiveBench& bench, int64_t ranks) {
    fmt::print("# {} over {}, {} ranks, {} warm-up iterations, times are {}\n#\n", bench.collective, bench.transport,
               ranks, bench.warmup, bench.average_name());
    fmt::print("#{:>59} {:>31}\n", "out-of-place", "in-place");
    fmt::print("#{:>11} {:>13} {:>9} {:>7} {:>7} {:>8} {:>7} {:>7} {:>6}  {:>8} {:>7} {:>7} {:>6}\n", "size", "count",
               "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    fmt::print("#{:>11} {:>13} {:>9} {:>7} {:>7} {:>8} {:>7} {:>7} {:>6}  {:>8} {:>7} {:>7} {:>6}\n", "(B)",
               "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
    std::fflush(stdout);
}

int run_rank(const CollectiveBench& bench, Config& config, const Job& job) {
    const std::vector<int64_t> sizes = bench_sizes(bench, bench_form(bench.collective), job.ranks);
    return measuring_rank(job, *meeting_by(config), [&](Rendezvous& rendezvous) {
        const auto [transport, device] = open_backends(bench, config, &job);
        refuse_places(bench, *transport, job.local_ranks < job.ranks);
        Memory arena = device->allocate(2 * sizes.back() + 4096, transport->contract().memory.front());
        Group group{"bench", "bench", {}, static_cast<int>(job.rank)};
        for (int64_t rank = 0; rank < job.ranks; ++rank) group.ranks.push_back(rank);
        if (job.rank == 0) print_head(bench, job.ranks);
        int64_t wrong = 0;
        double bandwidth = 0;
        {
            const auto communicator = transport->make(group, rendezvous, std::span(&arena, 1), limit);
            BenchRows rows(bench, *communicator, rendezvous, arena, limit);
            for (const int64_t bytes : sizes) rows.row(bytes);
            wrong = rows.wrong();
            bandwidth = rows.mean_bus_bandwidth();
        }
        device->release(arena);
        if (job.rank == 0)
            fmt::print("# Out of bounds values : {} {}\n# Avg bus bandwidth    : {:g}\n#\n", wrong,
                       wrong ? "FAILED" : "OK", bandwidth);
        return wrong ? 1 : 0;
    });
}

void refuse_other_ranks(const CollectiveBench& bench, const Job& job) {
    if (!job.ours && bench.ranks && *bench.ranks != job.ranks)
        throw Error(fmt::format("bench: --ranks {}, but {} has started {} rank{}\n  leave --ranks out", *bench.ranks,
                                job.launcher, job.ranks, job.ranks == 1 ? "" : "s"));
}

std::vector<std::string> types() {
    std::vector<std::string> names;
    using enum DType;
    for (const DType type : {f32, bf16, f16, f64, i32, i64, u32, u16, u8}) names.emplace_back(name_of(type));
    names.emplace_back("i8");
    return names;
}

/// Throws Error for --set keys that bench does not read. A configuration file may have others, since it may be a run's.
void refuse_idle_sets(const std::vector<std::string>& sets) {
    for (const std::string& set : sets) {
        const bool read =
            set.starts_with("transport.") || set.starts_with("device.cpu.") || set.starts_with("plugins.");
        if (!read || set.starts_with("transport.axis."))
            throw Error(
                "--set " + set +
                ": the bench does not read this\n  it reads transport.NAME.KEY, device.cpu.KEY and plugins.path");
    }
}

}  // namespace

std::string CollectiveBench::type_name() const { return std::string(signed_bytes ? "i8" : name_of(dtype)); }

const char* CollectiveBench::average_name() const {
    switch (average) {
        case Average::first: return "rank 0's";
        case Average::least: return "the fastest rank's";
        case Average::most: return "the slowest rank's";
        case Average::mean: break;
    }
    return "means of the ranks";
}

int64_t parse_size(std::string_view text) {
    int64_t size = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), size);
    const std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
    int shift = -1;
    if (unit.empty()) shift = 0;
    if (unit == "K" || unit == "k") shift = 10;
    if (unit == "M" || unit == "m") shift = 20;
    if (unit == "G" || unit == "g") shift = 30;
    if (fault != std::errc() || shift < 0 || size < 0 || size > (int64_t{1} << 50) >> shift)
        throw Error(fmt::format("'{}' is not a size; expected a number of bytes, or a number with K, M or G", text));
    return size << shift;
}

int bench_collectives(const CollectiveBench& bench, Config& config, const std::vector<std::string>& arguments) {
    const BenchForm& form = bench_form(bench.collective);
    const int64_t ranks = bench.ranks.value_or(2);
    if (ranks < 1 || ranks > 1024) throw Error(fmt::format("bench: --ranks {}: expected 1 to 1024", ranks));
    if (bench.factor < 2)
        throw Error(fmt::format("bench: -f {}: expected a factor between message sizes of 2 or more", bench.factor));
    if (bench.begin > bench.end) throw Error("bench: -b is greater than -e");
    if (bench.signed_bytes && form.reduces && bench.op != ReduceOp::sum)
        throw Error(
            fmt::format("bench: --op {} is not supported for i8, which is sent as unsigned bytes\n  use --op sum",
                        name_of(bench.op)));
    const Job job = job_from_environment([&] { return launchers_by(config); });
    await_name(job, false);
    ScriptCommand hosts;
    hosts.script = "bench";
    hosts.nodes = bench.nodes;
    hosts.node_rank = bench.node_rank;
    hosts.rendezvous = bench.rendezvous;
    hosts.arguments = arguments;
    if (job.assigned) {
        refuse_other_ranks(bench, job);
        if (job.ours)
            watch_lifeline();
        else
            refuse_launch_flags(hosts, job);
        return run_rank(bench, config, job);
    }
    check_nodes(hosts);
    LaunchSpec spec = over_hosts(hosts, ranks);
    bench_sizes(bench, form, ranks);  // reports invalid sizes before a rank starts
    refuse_places(bench, *open_backends(bench, config).transport, bench.nodes > 1);
    spec.meeting = meeting_by(config);
    return launch_meeting(std::move(spec), bench.node_rank, [] {});
}

std::vector<std::string> bench_op_names() { return {"sum", "max", "min"}; }

int bench_command(BenchCommand& command) {
    command.bench.begin = parse_size(command.begin);
    command.bench.end = parse_size(command.end);
    command.bench.signed_bytes = command.dtype == "i8";
    const auto dtype = command.bench.signed_bytes ? DType::u8 : parse_dtype(command.dtype);
    if (!dtype)
        throw Error("--dtype " + command.dtype + ": no such type" + choices("there are", command.dtype, types()));
    command.bench.dtype = *dtype;
    command.bench.op = command.op == "max" ? ReduceOp::max : command.op == "min" ? ReduceOp::min : ReduceOp::sum;
    command.bench.average = static_cast<CollectiveBench::Average>(command.average);
    refuse_idle_sets(command.sets);
    Config config = load_config(command.config, command.sets);
    return bench_collectives(command.bench, config, command.arguments);
}

}  // namespace orrery
