#include "cli/simulate/local_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/processors.h"
#include "cli/script_runner.h"
#include "cli/simulate/forecast.h"
#include "run/calibrate/kept_costs.h"
#include "run/overlap.h"
#include "sim/local/local_costs.h"
#include "sim/local/local_prices.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

/// Payload of a full Ethernet frame: 1,500 bytes, of which IPv4, TCP and its timestamps take 52, after a header of 14.
constexpr double tcp_payload = 1448.0 / 1514.0;

/// Compiles a script as a run on this host does, without starting ranks; data files may be missing. `quick`: only the
/// train step, without proof. `processors`: of the host that ran the script; 0: of this host.
std::unique_ptr<ScriptRunner> record_here(const ScriptCommand& command, bool quick, int64_t processors) {
    ScriptUse use{.prints = false, .tells = !quick};
    use.options = [quick](CompileOptions& options) {
        if (quick) options.proved = options.fingerprinted = false;
    };
    use.compile = compile_priced;
    auto script = std::make_unique<ScriptRunner>(command, Job{}, std::move(use));
    script->train_step_alone = quick;
    Settings& settings = script->settings;
    script->job.local_ranks = settings.mesh.ranks();
    if (processors > 0 && settings.threads_per_rank == 0)
        settings.threads_per_rank = threads_left(processors, script->job.local_ranks);
    script->load();
    script->run();
    return script;
}

CompiledHere compiled_of(ScriptRunner& script) {
    return {script.compiled(),
            script.settings,
            script.declared_options(),
            script.microbatches,
            script.device_facts().host_memory,
            std::move(script.experiment->train())};
}

/// Returns transport contracts by axis. Axes with a communication thread get contracts with queued calls.
Network contracts_of_run(const Compiled& compiled, const Settings& settings, double processors) {
    Network contracts = compiled.contracts;
    const Plan& plan = priced_step(compiled);
    Job job;  // the job of any rank, as the launcher would set it
    job.ranks = job.local_ranks = plan.mesh.ranks();
    job.threads = plan.threads_per_rank;
    const Overlapping beside =
        overlapping(settings, job, compiled.contracts, {&plan}, static_cast<int64_t>(processors));
    for (const std::string& axis : beside.axes) {
        TransportContract contract = compiled.contracts.of(axis);
        contract.queued = true;
        contracts[axis] = contract;
    }
    return contracts;
}

std::string kept_name(const std::string& machine) {
    return fmt::format("the saved costs of this machine ({})", kept_costs_path(machine));
}

/// Throws Error for costs measured on several hosts, since simulated ranks share the processors of one.
void require_one_host(const CostTable& measured) {
    if (const double hosts = fact_of(measured, "hosts", 1); hosts > 1)
        throw Error(
            fmt::format("the run had {:.0f} hosts, but a forecast from measured costs only supports one\n  describe "
                        "the machines as a cluster: --cluster FILE (configs/clusters)",
                        hosts));
}

std::string file_of_run(const std::string& folder) { return folder + "/costs.json"; }

struct Tables {
    const std::string here;
    std::vector<CostTable> plain;
    std::vector<std::string>& names;
    std::vector<std::string>& notes;

    void add(const CostTable& table, const std::string& from) {
        plain.push_back(plain_costs(table));
        names.push_back(from);
        if (const std::string other = other_machine(table.machine, here); !other.empty())
            notes.push_back(fmt::format("{}: {}", from, other));
        if (const std::string wide = spread_note(table); !wide.empty())
            notes.push_back(fmt::format("{}: {}", from, wide));
    }

    /// Adds the table cached for this machine. A damaged one is only reported, since the user did not ask for it.
    void add_kept() {
        try {
            if (const auto kept = kept_costs(here)) add(*kept, kept_name(here));
        } catch (const Error& problem) {
            notes.push_back(fmt::format("the saved costs of this machine are not used: {}", problem.what()));
        }
    }

    std::string notes_text() const {
        std::string text;
        for (const std::string& note : notes) text += "\n  " + note;
        return text;
    }
};

}  // namespace

std::optional<CostTable> named_table(const Settings& settings, Config& config) {
    if (settings.costs.empty()) return std::nullopt;
    try {
        return read_costs(settings.costs);
    } catch (const Error& problem) {
        throw Error(config.table("simulate").where("table"), fmt::format("simulate.table: {}", problem.what()));
    }
}

std::optional<CostTable> measured_by(const std::string& folder) {
    std::error_code ignored;
    if (!fs::is_directory(folder, ignored) || !fs::exists(file_of_run(folder), ignored)) return std::nullopt;
    CostTable measured = read_costs(file_of_run(folder));
    require_one_host(measured);
    return measured;
}

double processors_of(const CostTable& plain, const SimulateCommand& how) {
    return how.processors > 0 ? static_cast<double>(how.processors)
                              : fact_of(plain, "processors", static_cast<double>(usable_processors()));
}

LocalForecast local_forecast(const Compiled& compiled, const Settings& settings, const CostTable& plain,
                             const SimulateCommand& how) {
    const std::optional<ExpertLoads> loads = loads_of(priced_step(compiled), how);
    const Plan& plan = loads ? loads->plan : priced_step(compiled);
    LocalForecast made;
    made.loads = text_of(loads, how);
    SharedHost host;
    host.processors = processors_of(plain, how);
    host.link_bytes_s = how.link_gbit * 1e9 / 8 * tcp_payload;
    host.link_latency_s = how.link_us * 1e-6;
    made.processors = host.processors;
    for (const auto& [axis, contract] : compiled.contracts) made.transports[axis] = settings.transport_of(axis);
    LocalPrices prices(plain, plan, host, made.transports);
    SimulateOptions options;
    options.slow = slow_ranks(how.slow, plan.mesh.ranks());
    options.jitter = how.jitter;
    options.each_rank = true;
    options.every_launch = true;
    const Network contracts = contracts_of_run(compiled, settings, host.processors);
    made.run = simulate(plan, contracts, prices, options);
    made.round = add_round(made.run, compiled, [&](size_t program) {
        const Plan& other = priced_step(compiled, program);
        const bool trains = round_programs(compiled)[program]->entry.role == ProgramRole::train;
        const std::optional<ExpertLoads> given = trains ? loads_of(other, how) : std::nullopt;
        LocalPrices own(plain, given ? given->plan : other, host, made.transports);
        return simulate(given ? given->plan : other, contracts, own, options);
    });
    made.rest_s = total_of(plain, "rest");
    made.sources = prices.sources();
    return made;
}

int64_t threads_left(int64_t processors, int64_t ranks) { return std::max<int64_t>(1, processors / ranks); }

CompiledHere compiled_here(const ScriptCommand& given, int64_t processors) {
    return compiled_of(*record_here(given, true, processors));
}

LocalScript local_script(const ScriptCommand& given, const SimulateCommand& how) {
    if (how.link_us > 0 && how.link_gbit <= 0)
        throw Error("--link-us needs the rate of the link, too; add --link-gbit, for example --link-gbit 1",
                    Fault::usage);
    std::error_code ignored;
    const bool folder = fs::is_directory(given.script, ignored);
    const std::optional<CostTable> measured = measured_by(given.script);
    const auto ran_on = measured ? static_cast<int64_t>(fact_of(*measured, "processors", 0)) : 0;
    const auto script = record_here(given, false, ran_on);
    LocalScript made{compiled_of(*script), {}, {}, {}, measured};
    Tables all{machine_of(*script->counting()), {}, made.tables, made.notes};
    if (const auto named = named_table(script->settings, script->config()))
        all.add(*named, script->settings.costs);
    else
        all.add_kept();
    for (const std::string& table : how.tables) all.add(read_costs(table), table);
    if (measured) all.add(*measured, file_of_run(given.script));
    if (all.plain.empty() && folder)
        throw Error(
            fmt::format("{} has no costs.json: a run writes it when it ends after at least 2 steps, if "
                        "its round is one program\n  let it end, "
                        "or use a table of this machine: --table FILE, which orrery calibrate -o FILE writes{}",
                        given.script, all.notes_text()));
    if (all.plain.empty())
        throw Error(fmt::format("no cluster and no table of measured costs to simulate {} with\n  --cluster FILE: on a "
                                "cluster (configs/clusters); --table FILE: on this machine, as measured by orrery "
                                "calibrate; or name a run's folder, which has the costs that the run measured{}",
                                given.script, all.notes_text()),
                    Fault::usage);
    made.plain = joined_costs(all.plain);
    return made;
}

std::string closing_comparison(const Compiled& compiled, const Settings& settings, Config& config,
                               const std::string& file) {
    if (settings.costs.empty() && !any_kept_costs()) return "";
    try {
        const CostTable measured = read_costs(file);
        std::optional<CostTable> table = named_table(settings, config);
        const std::string name = table ? settings.costs : kept_name(measured.machine);
        if (!table) table = kept_costs(measured.machine);
        if (!table) return "";
        require_one_host(measured);
        if (const std::pair<std::string, std::string> full{"fingerprint", priced_step(compiled).fingerprint};
            std::find(measured.facts.begin(), measured.facts.end(), full) == measured.facts.end())
            return "no prediction: the measured (last) step had a smaller batch or a larger capacity than the "
                   "predicted one";
        const CostTable plain = plain_costs(*table);
        const LocalForecast made = local_forecast(compiled, settings, plain, {});
        std::string text = text_of(compare(priced_step(compiled), made.run, made.rest_s, measured));
        text += "  costs: " + name + "\n";
        for (const std::string& source : made.sources) text += "  " + source + "\n";
        if (const std::string other = other_machine(table->machine, measured.machine); !other.empty())
            text += "  " + other + "\n";
        if (const std::string wide = spread_note(*table); !wide.empty()) text += "  " + wide + "\n";
        text.pop_back();
        return text;
    } catch (const std::exception& problem) {  // a failed comparison must not fail a run that succeeded
        return fmt::format("no prediction: {}", problem.what());
    }
}

}  // namespace orrery
