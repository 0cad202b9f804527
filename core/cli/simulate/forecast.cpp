#include "cli/simulate/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "base/text.h"
#include "cli/script_runner.h"
#include "cli/simulate/nominal_rate.h"
#include "cli/simulate/software.h"
#include "compile/recipe.h"
#include "config/load.h"
#include "orrery/p2p.h"
#include "plan/opening.h"
#include "run/calibrate/kept_costs.h"
#include "sim/cluster_prices.h"
#include "sim/local/local_costs.h"
#include "sim/software/held.h"

namespace orrery {
namespace {

/// Throws Error for configurations that cannot be simulated on a cluster. `tp_chunks`: as --tp-chunks asks.
void refuse_on_clusters(ScriptRunner& script, int64_t tp_chunks) {
    if (!script.settings.collectives.empty())
        throw Error(script.config().table("collectives").origin(),
                    "[collectives]: a simulation on a cluster does not support collective algorithms of a script\n"
                    "  remove the table: the cluster's own library chooses the algorithms");
    const Mesh& mesh = script.settings.mesh;
    const auto tp = mesh.find("tp");
    if (tp_chunks > 0 && (!tp || mesh.size(*tp) == 1))
        throw Error(
            fmt::format("--tp-chunks {}: the mesh {} has no tp collectives to split\n  set mesh.tp, or "
                        "leave --tp-chunks out",
                        tp_chunks, mesh.text()));
    check_backends(script.config(), script.loader.names());
}

/// Sets the transport of every mesh axis to nccl, with an accelerator's contract.
void place_on_cluster(ScriptRunner& script) {
    script.job.local_ranks = 1;
    script.settings.transport = "nccl";
    script.settings.axis_transport.clear();
    for (const Axis& axis : script.settings.mesh.axes())
        if (axis.size > 1) script.contracts[axis.name] = accelerator_contract();
}

template <class T>
std::optional<T> whole(std::string_view text) {
    T value{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

Json training_json(const TrainingTerms& terms, double step_s) {
    const TrainingCost cost = training_cost(terms, step_s);
    const auto known = [](double amount) { return amount > 0 ? Json(amount) : Json(nullptr); };
    return {{"tokens", terms.tokens},
            {"steps", cost.steps},
            {"days", cost.days},
            {"goodput", known(terms.goodput.value_or(0))},
            {"price", known(cost.price)}};
}

std::map<int64_t, double> slow_ranks(const std::vector<std::string>& given, int64_t ranks) {
    constexpr double most = 1e6;
    std::map<int64_t, double> slow;
    for (const std::string& text : given) {
        const size_t colon = std::min(text.size(), text.find(':'));
        const auto rank = whole<int64_t>(std::string_view(text).substr(0, colon));
        const auto by = whole<double>(std::string_view(text).substr(std::min(text.size(), colon + 1)));
        if (!rank || !by || *rank < 0 || *rank >= ranks || !(*by >= 1 && *by <= most))
            throw Error(
                fmt::format("--slow {}: expected RANK:TIMES, a rank below {} and how many times as long its kernels "
                            "take, from 1 to {:.0f}, for example --slow 5:1.5",
                            text, ranks, most),
                Fault::usage);
        if (!slow.emplace(*rank, *by).second)
            throw Error(fmt::format("--slow {}: duplicate rank {}\n  leave one of them out", text, *rank),
                        Fault::usage);
    }
    return slow;
}

Cluster read_cluster(const std::string& path, int64_t nodes) {
    Config file = load_toml(path);
    Cluster cluster(file);
    if (cluster.name.empty()) cluster.name = std::filesystem::path(path).stem().string();
    return nodes > 0 ? cluster.with_nodes(nodes) : cluster;
}

void compile_priced(ScriptRunner& script, Experiment experiment) {
    make_sizes(experiment, 0, 1);
    script.compile_whole(std::move(experiment));
}

const Plan& priced_step(const Compiled& compiled, size_t program) {
    const CompiledProgram* const full = round_programs(compiled)[program];
    for (const CompiledProgram& smaller : compiled.programs)
        if (is_smaller_step(smaller.entry, full->entry.batch) && smaller.entry.batch == full->entry.batch &&
            smaller.entry.capacity == compiled.capacities.front() &&
            round_index(compiled.round, smaller.entry) == program)
            return smaller.plan;
    return full->plan;
}

std::string priced_text(const Compiled& compiled) {
    if (compiled.capacities.size() < 2) return "";
    std::vector<std::string> all;
    for (const double capacity : compiled.capacities) all.push_back(fmt::format("{:g}", capacity));
    return fmt::format(
        "time is of the smallest capacity of {}, since only steps that overflow it run again with a larger one; memory "
        "is of the largest",
        join(all, ", "));
}

std::string capacity_line(const Compiled& compiled) {
    const std::string text = priced_text(compiled);
    return text.empty() ? "" : fmt::format("capacity    {}\n", text);
}

std::optional<ExpertLoads> loads_of(const Plan& plan, const SimulateCommand& command) {
    if (command.imbalance == 0) return std::nullopt;
    ExpertLoads made = with_expert_loads(plan, command.imbalance);
    if (made.launches == 0)
        throw Error(fmt::format("--imbalance {}: the program has no grouped_matmul over slots of experts\n  leave "
                                "--imbalance out, or simulate a script with nn.moe",
                                command.imbalance),
                    Fault::usage);
    return made;
}

std::string text_of(const std::optional<ExpertLoads>& loads, const SimulateCommand& command) {
    if (!loads) return "";
    return fmt::format(
        "imbalance   {:g} times the mean load fills {:.1f} % of an expert's slots, {:.1f} % of its tokens "
        "find none\n",
        command.imbalance, 100 * loads->slots, 100 * loads->dropped);
}

std::optional<MeasuredKernels> measured_kernels(const Cluster& cluster, const SimulateCommand& command) {
    if (command.tables.empty()) return std::nullopt;
    if (command.software != "orrery")
        throw Error(fmt::format("--table with --software {}: a table has times of orrery's own kernels, not of {}\n"
                                "  leave --table or --software out",
                                command.software, command.software),
                    Fault::usage);
    MeasuredKernels made;
    std::vector<CostTable> plain;
    for (const std::string& file : command.tables) {
        const CostTable& table = plain.emplace_back(plain_costs(read_costs(file)));
        if (measured_on(table) != measured_on(plain.front()))
            throw Error(
                fmt::format("--table {}: measured on {}, but {} on {}\n  give tables of one device: kernel times "
                            "on other accelerators are estimated by formulas",
                            file, measured_on(table), command.tables.front(), measured_on(plain.front())),
                Fault::usage);
        std::vector<std::string> matching, others;
        for (const NodeKind& kind : cluster.kinds)
            (measured_on(table, kind.accelerator.name) ? matching : others).push_back(kind.accelerator.name);
        if (matching.empty())
            throw Error(fmt::format("--table {}: measured on {}, but the cluster {} has {}\n  use a table that orrery "
                                    "calibrate measured on one of these, rename [accelerator.NAME] so that all its "
                                    "parts are words of the measured device's name, or leave --table out",
                                    file, measured_on(table), cluster.name, join(others, ", ")),
                        Fault::usage);
        made.notes.push_back(fmt::format("kernel times on {} are measured, from {} ({})", join(matching, ", "), file,
                                         measured_on(table)));
        if (!others.empty())
            made.notes.push_back(fmt::format("kernel times on {} are estimated by formulas", join(others, ", ")));
        if (const std::string wide = spread_note(table); !wide.empty())
            made.notes.push_back(fmt::format("{}: {}", file, wide));
    }
    made.table = joined_costs(plain);
    return made;
}

Forecast forecast(const ScriptCommand& given, const Cluster& cluster, const SimulateCommand& command,
                  const MeasuredKernels* measured) {
    const SoftwareDefaults named = software_named(command.software);
    ScriptCommand asked = given;
    // Other software scales and casts by itself, so compile the plan in 16 bits and price its GEMMs in 8.
    const bool eight_bit = !named.planned && config_of(given).table("train").text("precision", "") == "fp8";
    if (eight_bit) asked.own_sets.push_back("train.precision=bf16");
    ScriptUse use{.scratch = ScriptUse::Scratch::elsewhere, .prints = false, .tells = !command.quick};
    use.compile = compile_priced;
    use.options = [&](CompileOptions& options) {
        options.memory_bytes = 0;  // no limit here: the prediction says by how much memory is exceeded
        if (!command.quick) return;
        options.proved = options.fingerprinted = false;
        options.written_micros = 0;
    };
    ScriptRunner script(asked, Job{}, std::move(use));
    script.train_step_alone = command.quick;
    refuse_on_clusters(script, command.searched ? 0 : command.tp_chunks);
    const bool tf32 = script.config().table("device").table("cuda").flag("tf32", false);
    place_on_cluster(script);
    script.run();
    Forecast made;
    made.compiled = script.compiled();
    made.options = script.declared_options();
    made.microbatches = script.microbatches;
    const Plan& plan = priced_step(made.compiled);
    const Mapping mapping(cluster, plan.mesh, command.mapping);
    made.mapping = mapping.text();
    const Constants constants;
    const DType compiled_in = script.experiment->recipe->precision;
    made.recorded = std::move(script.experiment->train());
    if (!named.planned && compiled_in == DType::f8e4m3)
        throw Error(
            fmt::format("--software {}: the script sets precision \"fp8\", which compiles orrery's own 8-bit kernels\n"
                        "  set train.precision = \"fp8\" in the configuration instead",
                        command.software));
    const DType precision = eight_bit ? DType::f8e4m3 : compiled_in;
    const SoftwareRun software = software_run(named, plan, cluster, mapping, precision);
    made.software = named.name;
    made.differences = differences(software, plan, made.options);
    ClusterPrices prices(cluster, plan.mesh, mapping, constants, software, tf32, measured ? &measured->table : nullptr);
    SimulateOptions options;
    options.slow = slow_ranks(command.slow, plan.mesh.ranks());
    options.jitter = command.jitter;
    options.every_launch = !command.trace.empty();
    options.lanes = !command.out.empty() && !command.quick;  // of `orrery plan`, `out` is not a timeline
    const std::optional<ExpertLoads> loads = loads_of(plan, command);
    made.loads = text_of(loads, command);
    const TpChunked played = with_software(loads ? loads->plan : plan, software, command.tp_chunks);
    made.cut = played.cut;
    made.cut_of = played.all;
    options.mapped = played.chunks;
    made.run = simulate(played.plan, made.compiled.contracts, prices, options);
    made.round = add_round(made.run, made.compiled, [&](size_t program) {
        const Plan& other = priced_step(made.compiled, program);
        const bool trains = round_programs(made.compiled)[program]->entry.role == ProgramRole::train;
        const std::optional<ExpertLoads> given = trains ? loads_of(other, command) : std::nullopt;
        const TpChunked chunked = with_software(given ? given->plan : other, software, trains ? command.tp_chunks : 0);
        ClusterPrices own(cluster, other.mesh, mapping, constants, software, tf32,
                          measured ? &measured->table : nullptr);
        SimulateOptions plain;
        plain.slow = options.slow;
        plain.jitter = options.jitter;
        plain.mapped = chunked.chunks;
        plain.every_launch =
            std::ranges::any_of(other.classes, [&](const RankClass& c) { return opening(other.program, c) > 0; });
        return simulate(chunked.plan, made.compiled.contracts, own, plain);
    });
    std::vector<int64_t> memory;  // by class, of other software
    const auto context = static_cast<int64_t>(constants.of("memory.context_gib") * (1 << 30));
    for (const RankClass& c : made.compiled.train().classes)
        if (!named.planned) memory.push_back(context + held_bytes(made.compiled.train(), c, software));
    made.sources = prices.sources();
    made.prediction =
        predict(made.compiled, made.run, cluster, mapping, rate_name(precision, tf32), command.restart_s, memory);
    made.prediction.spread = spread_of(command.software);
    return made;
}

}  // namespace orrery
