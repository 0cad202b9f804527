#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "base/processors.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/calibrate/refit.h"
#include "cli/calibrate/table_files.h"
#include "cli/calibrate/wires.h"
#include "cli/host_limits.h"
#include "cli/script_runner.h"
#include "config/load.h"
#include "run/calibrate/kernel_cases.h"
#include "run/calibrate/wire_bench.h"
#include "run/control/address.h"
#include "run/matrix_rate.h"
#include "sim/local/local_costs.h"

namespace orrery {
namespace {

struct Calibration {
    std::unique_ptr<ScriptRunner> script;  ///< nullptr: a grid of kernels is measured
    Config config;
    Settings settings;
    Registry registry;
    std::unique_ptr<Loader> loader;    ///< loads the plugins if there is no script
    std::vector<std::string> plugins;  ///< loaded plugins, such as "transport/shm"
    std::unique_ptr<Device> device;
    std::vector<KernelCase> cases;
    int64_t pool_bytes = 0;
    struct Ranks {
        std::string transport;
        int64_t count;
    };
    std::vector<Ranks> wires;
    std::set<int64_t> bytes;  ///< sizes of messages to measure; empty: those of --bytes, or the usual ones
};

std::vector<std::string> with_threads(const ScriptCommand& script, const CalibrateCommand& command) {
    std::vector<std::string> sets = script.sets;
    if (command.rank_threads > 0) sets.push_back(fmt::format("run.threads_per_rank={}", command.rank_threads));
    return sets;
}

/// Sizes of a plan's collectives and messages.
std::set<int64_t> wire_bytes_of(const Plan& plan) {
    std::set<int64_t> sizes;
    for (const RankClass& c : plan.classes)
        for (const Instruction& i : c.stream) {
            int64_t bytes = 0;
            if (i.axis != none)
                for (const Operand& operand : i.operands) bytes = std::max(bytes, operand.type.bytes());
            if (bytes > 0) sizes.insert(std::clamp<int64_t>(bytes, 4, 64 << 20));  // larger ones cost by their bytes
        }
    return sizes;
}

void prepare_script(Calibration& all, const ScriptCommand& command) {
    all.script = std::make_unique<ScriptRunner>(command, Job{}, ScriptUse{.prints = false});
    ScriptRunner& script = *all.script;
    script.load_for_hosts(0);
    script.run();
    const Compiled& compiled = script.compiled();
    all.settings = script.settings;
    all.plugins = script.loader.names();
    // The device is opened in the same way as by a rank on this host.
    all.device = make_device(script.settings, script.config(), script.registry, script.job);
    std::vector<const Plan*> plans;
    for (const CompiledProgram* program : round_programs(compiled))
        if (program) plans.push_back(&program->plan);
    all.cases = kernel_cases(plans);
    all.pool_bytes = std::min(compiled.largest_arenas().both(), int64_t{256} << 20);
    for (const Plan* plan : plans) all.bytes.merge(wire_bytes_of(*plan));
    for (const int64_t bytes : usual_wire_bytes()) all.bytes.insert(bytes);
    for (const Axis& axis : all.settings.mesh.axes())
        if (axis.size > 1) all.wires.push_back({all.settings.transport_of(axis.name), axis.size});
}

bool joins_cpus(const TransportFacts& facts) { return std::ranges::count(facts.devices, "cpu") > 0; }

std::optional<TransportFacts> facts_of(const Calibration& all, const std::string& transport) {
    Config config = all.script ? all.script->config() : all.config;
    try {
        return Loader(and_plugin_folders(config.table("plugins").texts("path")))
            .facts("transport", transport, {})
            .of_transport();
    } catch (const Error&) {
        return std::nullopt;
    }
}

bool can_measure(const Calibration& all, const std::string& transport) {
    const auto facts = facts_of(all, transport);
    return facts && joins_cpus(*facts);
}

void prepare_grid(Calibration& all, const ScriptCommand& script, const CalibrateCommand& command) {
    all.config = load_config(script.config, script.sets);
    all.settings = read_settings(all.config);
    all.loader = std::make_unique<Loader>(and_plugin_folders(all.config.table("plugins").texts("path")));
    all.plugins = all.loader->names();
    check_backends(all.config, all.plugins);
    const std::string& name = all.settings.device;
    all.loader->load("device", name, all.registry, {});
    if (const std::string why = all.loader->cannot_run("device", name); !why.empty())
        throw Error(fmt::format("calibrate: device {} cannot run on this host: {}", name, why));
    all.device = make_device(all.settings, all.config, all.registry, Job{});
    all.cases = kernel_grid(*all.device, *parse_dtype(command.dtype));
    all.pool_bytes = pool_bytes_here();
    if (command.transports) return;
    for (const std::string& transport : names_of("transport", all.plugins))
        if (can_measure(all, transport)) all.wires.push_back({transport, 2});
}

std::vector<int64_t> rank_counts(const std::string& text) {
    std::vector<int64_t> counts;
    for (const std::string& part : split(text, ',')) {
        int64_t count = 0;
        const auto [end, fault] = std::from_chars(part.data(), part.data() + part.size(), count);
        if (fault != std::errc() || end != part.data() + part.size() || count < 2 || count > 1024)
            throw Error(fmt::format("--ranks {}: expected numbers of ranks from 2 to 1024, for example 2,4", text));
        if (count > most_measured_ranks())
            throw Error(
                fmt::format("--ranks {}: {} ranks on {} are too many to measure; the maximum is 64 for each processor: "
                            "{}\n  use fewer ranks; a forecast scales measured times to more ranks",
                            text, count, plural(usable_processors(), "processor"), most_measured_ranks()));
        counts.push_back(count);
    }
    return counts;
}

std::vector<std::string> named_transports(const Calibration& all, const std::string& text) {
    if (text == "none") return {};
    std::vector<std::string> there = names_of("transport", all.plugins);
    std::vector<std::string> names = split(text, ',');
    if (names.empty()) names.emplace_back();
    for (const std::string& name : names) {
        if (std::ranges::count(there, name) > 0) continue;
        std::erase_if(there, [&](const std::string& other) { return !can_measure(all, other); });
        there.emplace_back("none");
        throw Error(fmt::format("--transports {}: no transport {}{}", quote(text), quote(name),
                                choices("there are", name, there)));
    }
    return names;
}

/// Chooses the pairs of transport and number of ranks to measure: from the command line, else from the script.
void choose_wires(Calibration& all, const CalibrateCommand& command) {
    std::vector<std::string> transports;
    std::vector<int64_t> counts;
    for (const Calibration::Ranks& wire : all.wires) {
        transports.push_back(wire.transport);
        counts.push_back(wire.count);
    }
    if (command.transports) transports = named_transports(all, *command.transports);
    if (!command.ranks.empty()) counts = rank_counts(command.ranks);
    if (counts.empty()) counts = {2};
    const bool given = command.transports || !command.ranks.empty();
    std::vector<Calibration::Ranks> asked = given ? std::vector<Calibration::Ranks>{} : all.wires;
    for (const std::string& transport : transports)
        for (const int64_t count : counts)
            if (given) asked.push_back({transport, count});
    all.wires.clear();
    std::set<std::pair<std::string, int64_t>> seen;
    for (const Calibration::Ranks& wire : asked) {
        // A transport that cannot be loaded is reported later and not measured.
        if (const auto facts = facts_of(all, wire.transport); facts && !joins_cpus(*facts))
            throw Error(fmt::format("--transports {}: it does not connect ranks on CPUs; use shm, gloo or ucx",
                                    wire.transport));
        if (wire.count > most_measured_ranks())
            throw Error(
                fmt::format("the mesh has an axis of {} ranks on transport {}, but at most {} can be measured on this "
                            "host (64 for each processor)\n  set a smaller --ranks; a forecast scales measured times "
                            "to more ranks",
                            wire.count, wire.transport, most_measured_ranks()));
        if (seen.insert({wire.transport, wire.count}).second) all.wires.push_back(wire);
    }
}

class ProgressLine {
public:
    void show(const std::string& text) {
        if (!terminal_) return;
        std::fprintf(stderr, "\r\033[K%s", text.substr(0, 100).c_str());
        std::fflush(stderr);
    }
    ~ProgressLine() { show(""); }

private:
    const bool terminal_ = ::isatty(STDERR_FILENO) != 0;
};

void measure(Calibration& all, const ScriptCommand& script, const CalibrateCommand& command, CostTable& table) {
    ProgressLine line;
    // Each pair of transport and number of ranks gets a tenth of the time, at most half in all; kernels get the rest.
    const double wires_s = std::min(0.5, 0.1 * static_cast<double>(all.wires.size())) * command.seconds;
    KernelBench bench;
    bench.budget_s = command.seconds - wires_s;
    bench.threads = all.device->limits().threads;
    bench.pool_bytes = all.pool_bytes;
    bench.progress = [&](size_t done, size_t cases, const KernelSpec& spec) {
        line.show(fmt::format("kernels {}/{}: {}", done + 1, cases, spec.op));
    };
    table.kernels = measure_kernels(*all.device, all.cases, bench, table.notes);
    all.device.reset();
    const std::set<int64_t> bytes = command.bytes.empty() ? all.bytes : std::set<int64_t>{};
    for (const Calibration::Ranks& wire : all.wires) {
        line.show(fmt::format("{} between {} ranks", wire.transport, wire.count));
        WiresFound found =
            find_wires(script, wire.transport, wire.count, bytes, wires_s / static_cast<double>(all.wires.size()));
        if (!found.why_not.empty())
            table.notes.push_back(fmt::format("transport {} between {} ranks is not measured: {}", wire.transport,
                                              wire.count, found.why_not));
        // A message's time is that of the fewest ranks, which have the processors to themselves.
        const auto fewer = [&](const Calibration::Ranks& other) {
            return other.transport == wire.transport && other.count < wire.count;
        };
        const auto message = [&](const WireCost& row) {
            return row.op == "message" && row.transport == wire.transport;
        };
        if (std::ranges::any_of(all.wires, fewer) && std::ranges::any_of(table.wires, message))
            std::erase_if(found.rows, [](const WireCost& row) { return row.op == "message"; });
        table.wires.insert(table.wires.end(), found.rows.begin(), found.rows.end());
    }
}

std::vector<std::pair<std::string, std::string>> facts_of(const Calibration& all) {
    std::vector<std::pair<std::string, std::string>> facts = {
        {"host", host_name()},
        {"processors", std::to_string(usable_processors())},
        {"threads", std::to_string(all.device->limits().threads)},
        {"products", all.device->products().in_use},
        {"pool", bytes_text(all.pool_bytes)},
    };
    if (all.script) {
        facts.emplace_back("program", all.script->compiled().train().program.name);
        facts.emplace_back("mesh", all.settings.mesh.text());
    }
    return facts;
}

}  // namespace

int calibrate_command(const ScriptCommand& given, const CalibrateCommand& command) {
    ScriptCommand script = given;
    if (!command.refit.empty()) return refit_command(given, command);
    if (script.script_help && !script.script.empty()) return show_options(script, Job{});
    script.sets = with_threads(given, command);
    if (!command.wire.empty()) {
        std::error_code ignored;  // a script that cannot be inspected is not a run's folder
        const bool folder = std::filesystem::is_directory(script.script, ignored);
        const std::string file = folder ? script.script + "/config.toml" : script.config;
        return wires_process(script, command, [&] { return load_config(file, script.sets); });
    }
    tell_quota();
    TableFiles files(command);
    Calibration all;
    if (script.script.empty())
        prepare_grid(all, script, command);
    else
        prepare_script(all, script);
    choose_wires(all, command);
    files.require_own(all.settings.device);
    CostTable table;
    table.made_by = "calibrate";
    table.device = all.settings.device;
    table.machine = machine_of(*all.device);
    table.facts = facts_of(all);
    files.choose_kept(table.machine);
    measure(all, script, command, table);
    for (const std::string& note : table.notes) files.tell(note);
    if (const std::string note = spread_note(table); !note.empty()) files.tell(note);
    files.write_measured(table);
    return 0;
}

}  // namespace orrery
