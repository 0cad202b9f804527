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

/// Compiles as a run of this host would, and starts nothing; data may be missing.
struct HereScript final : ScriptRunner {
    using ScriptRunner::ScriptRunner;

    void print(const std::string&) override {}

    void prepare() override {
        job_.local_ranks = settings_.mesh.ranks();
        ScriptRunner::prepare();
    }

    std::string machine() {
        if (!counting_) counting_ = counting_device(job_, settings_);
        return machine_of(*counting_);
    }
};

/// Collectives on a thread of their own hold up nobody.
Network contracts_of_run(const Compiled& compiled, const Settings& settings, double processors) {
    Network contracts = compiled.contracts;
    const Plan& plan = compiled.train();
    Job job;  // as the launcher gives it to a rank
    job.ranks = job.local_ranks = plan.mesh.ranks();
    job.threads = plan.threads_per_rank;
    job.processors = static_cast<int64_t>(processors) / job.local_ranks;
    const Overlapping beside = overlapping(settings, job, compiled.contracts, {&plan});
    for (const std::string& axis : beside.axes) {
        TransportContract contract = compiled.contracts.of(axis);
        contract.queued = true;
        contracts[axis] = contract;
    }
    return contracts;
}

/// Processors are shared by all ranks here, and those of two hosts are not.
void require_one_host(const CostTable& measured) {
    if (const double hosts = fact_of(measured, "hosts", 1); hosts > 1)
        throw Error(
            fmt::format("the run had {:.0f} hosts, and a forecast by measured costs is of one\n  give the "
                        "machines as a cluster: --cluster FILE (configs/clusters)",
                        hosts));
}

}  // namespace

std::optional<CostTable> named_table(const Settings& settings, Config& config) {
    if (settings.costs.empty()) return std::nullopt;
    try {
        return read_costs(settings.costs);
    } catch (const Error& problem) {
        throw Error(config.table("simulate").where("table"), fmt::format("simulate.table: {}", problem.what()));
    }
}

LocalForecast local_forecast(const Compiled& compiled, const Settings& settings, const CostTable& plain,
                             const SimulateCommand& how) {
    const Plan& plan = compiled.train();
    LocalForecast made;
    SharedHost host;
    host.processors = how.processors > 0
                          ? static_cast<double>(how.processors)
                          : fact_of(plain, "processors", static_cast<double>(allowed_processors().size()));
    host.link_bytes_s = how.link_gbit * 1e9 / 8;
    host.link_latency_s = how.link_us * 1e-6;
    made.processors = host.processors;
    for (const auto& [axis, contract] : compiled.contracts) made.transports[axis] = settings.transport_of(axis);
    LocalPrices prices(plain, plan, host, made.transports);
    SimulateOptions options;
    options.slow = slow_ranks(how.slow, plan.mesh.ranks());
    options.jitter = how.jitter;
    options.each_rank = true;
    options.every_launch = true;
    made.run = simulate(plan, contracts_of_run(compiled, settings, host.processors), prices, options);
    made.rest_s = total_of(plain, "rest");
    made.sources = prices.sources();
    return made;
}

LocalScript local_script(const ScriptCommand& given, const SimulateCommand& how) {
    std::error_code ignored;
    const bool folder = fs::is_directory(given.script, ignored);
    HereScript script(given, Job{});
    script.run_script();
    LocalScript made{script.compiled(), script.settings(), {}, {}, {}};
    std::vector<CostTable> plain;
    const auto add = [&](const CostTable& table, const std::string& from) {
        plain.push_back(plain_costs(table));
        made.tables.push_back(from);
    };
    if (const auto named = named_table(script.settings(), script.config()))
        add(*named, script.settings().costs);
    else if (const auto kept = any_kept_costs() ? kept_costs(script.machine()) : std::nullopt)
        add(*kept, "what is kept for this machine");
    for (const std::string& file : how.tables) add(read_costs(file), file);
    if (folder) {
        const std::string file = given.script + "/costs.json";
        if (fs::exists(file, ignored)) {
            made.measured = read_costs(file);
            require_one_host(*made.measured);
            add(*made.measured, file);
        } else if (plain.empty()) {
            throw Error(
                fmt::format("{} has no costs.json: a run writes it at its end, and only where it has trained a "
                            "step behind its first\n  let the run end, or name a table of this machine: "
                            "--table FILE, which orrery calibrate -o FILE makes",
                            given.script));
        }
    }
    if (plain.empty())
        throw Error(fmt::format("no cluster and no table of measured costs to simulate {} by\n  --cluster FILE: on a "
                                "cluster (configs/clusters); --table FILE: on this machine, as orrery calibrate "
                                "measured it; or name a run's folder, which has what the run measured",
                                given.script),
                    Fault::usage);
    made.plain = joined_costs(plain);
    return made;
}

std::string closing_comparison(const Compiled& compiled, const Settings& settings, Config& config,
                               const std::string& file) {
    if (settings.costs.empty() && !any_kept_costs()) return "";
    try {
        const CostTable measured = read_costs(file);
        std::optional<CostTable> table = named_table(settings, config);
        if (!table) table = kept_costs(measured.machine);
        if (!table) return "";
        require_one_host(measured);
        const CostTable plain = plain_costs(*table);
        const LocalForecast made = local_forecast(compiled, settings, plain, {});
        std::string text = text_of(compare(compiled.train(), made.run, made.rest_s, measured));
        for (const std::string& source : made.sources) text += "  " + source + "\n";
        text.pop_back();
        return text;
    } catch (const std::exception& problem) {  // no reason to end a run that is done
        return fmt::format("nothing predicted: {}", problem.what());
    }
}

}  // namespace orrery
