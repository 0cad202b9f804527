#include "cli/calibrate/wires.h"

#include <fmt/format.h>

#include <cstdio>
#include <span>

#include "base/process.h"
#include "base/text.h"
#include "cli/launch.h"
#include "cli/launchers.h"
#include "cli/tell.h"
#include "plugin/loader.h"
#include "run/calibrate/wire_bench.h"
#include "run/control/job.h"

namespace orrery {
namespace {

WireBench bench_of(const CalibrateCommand& command) {
    WireBench bench;
    bench.transport = command.wire;
    bench.budget_s = command.wire_seconds;
    bench.bytes = command.bytes.empty() ? usual_wire_bytes() : command.bytes;
    return bench;
}

int run_rank(const CalibrateCommand& command, Config config, const Job& job, RendezvousBackend& meeting, bool threads) {
    return measuring_rank(job, meeting, [&](Rendezvous& rendezvous) {
        const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
        Registry registry;
        loader.load("device", "cpu", registry, {});
        loader.load("transport", command.wire, registry, {});
        const auto transport = registry.transport(command.wire, {})(config.table("transport").table(command.wire));
        pin_rank(job, transport->contract());  // first, since the device counts processors
        const auto device = registry.device("cpu", {})(config.table("device").table("cpu"));
        WireBench bench = bench_of(command);
        bench.threads = threads;
        Memory arena = device->allocate(wire_bytes(bench, job.ranks), transport->contract().memory.front());
        Group group{"wires", "wires", {}, static_cast<int>(job.rank)};
        for (int64_t rank = 0; rank < job.ranks; ++rank) group.ranks.push_back(rank);
        CostTable table;
        table.wires = measure_wires(*transport->make(group, rendezvous, std::span(&arena, 1), bench.limit), rendezvous,
                                    arena, bench);
        device->release(arena);
        if (job.rank == 0) fmt::print("{}", cost_table_text(table));
        std::fflush(stdout);
        return 0;
    });
}

bool ranks_are_threads(const std::string& transport, Config& config) {
    const Loader loader(and_plugin_folders(config.table("plugins").texts("path")));
    return loader.facts("transport", transport, {}).of_transport().same_process;
}

std::string first_error(const std::string& said) {
    constexpr std::string_view program = "orrery: ";
    std::string text;
    const std::vector<std::string> lines = split(trim(said), '\n');
    for (const std::string& line : lines) {
        if (!text.empty() && !line.starts_with(' ')) break;
        text += (text.empty() ? "" : "; ") + std::string(trim(line));
    }
    return text.starts_with(program) ? text.substr(program.size()) : text;
}

}  // namespace

int wires_process(const ScriptCommand& script, const CalibrateCommand& command, const std::function<Config()>& read) {
    Config config = read();
    const Job job = job_from_environment([&] { return launchers_by(config); });
    if (job.assigned) {
        if (!job.ours) throw Error("calibrate: start it without a launcher, since it starts its own ranks");
        watch_lifeline();
        return run_rank(command, config, job, *meeting_by(config), false);
    }
    if (ranks_are_threads(command.wire, config)) {
        launch_threads("calibrate", command.wire_ranks, *meeting_by(config), job.silence, [&](const Job& rank) {
            Config own = read();
            run_rank(command, own, rank, *meeting_by(own), true);
        });
        return 0;
    }
    ScriptCommand hosts;
    hosts.script = "calibrate";
    hosts.arguments = script.arguments;
    LaunchSpec spec = over_hosts(hosts, command.wire_ranks);
    spec.meeting = meeting_by(config);
    return launch_meeting(std::move(spec), 0, [] {});
}

WiresFound find_wires(const ScriptCommand& script, const std::string& transport, int64_t ranks,
                      const std::set<int64_t>& bytes, double seconds) {
    std::vector<std::string> arguments = script.arguments;
    arguments.front() = "/proc/self/exe";
    for (const std::string& more : {std::string("--wire"), transport, std::string("--wire-ranks"),
                                    std::to_string(ranks), std::string("--wire-seconds"), fmt::format("{}", seconds)})
        arguments.push_back(more);
    for (const int64_t size : bytes) arguments.push_back(fmt::format("--bytes={}", size));
    constexpr double begin_and_end_s = 60;
    const auto limit = std::chrono::milliseconds(static_cast<int64_t>(1e3 * (4 * seconds + begin_and_end_s)));
    const ChildEnd end = run_child(arguments, limit);
    if (const std::string why = end.why_not(); !why.empty()) {
        const std::string said = first_error(end.errors);
        return {{}, said.empty() ? "it " + why : said};
    }
    try {
        return {parse_cost_table(end.output, "what the ranks told").wires, ""};
    } catch (const Error& problem) {
        return {{}, problem.what()};
    }
}

}  // namespace orrery
