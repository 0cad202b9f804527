#include "cli/simulate/forecast.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "cli/script_runner.h"
#include "config/load.h"
#include "sim/cluster_prices.h"
#include "sim/contracts.h"
#include "sim/manners/tp_chunks.h"

namespace orrery {
namespace {

/// Compiles for a cluster that is not here: its transports and devices are what the cluster's file says.
struct SimulateScript final : ScriptRunner {
    using ScriptRunner::ScriptRunner;

    std::map<std::string, std::string> declared;
    bool quick = false;

    void print(const std::string&) override {}
    bool looks_only() const override { return true; }
    bool train_step_alone() const override { return quick; }

    void declare_options(const std::vector<Option>& options) override {
        for (const Option& option : options) declared[option.key] = option.value;
    }

    void prepare() override {
        if (!settings_.collectives.empty())
            throw Error(config_.table("collectives").origin(),
                        "[collectives]: algorithms of a script are not simulated on clusters\n  leave the table out: "
                        "the cluster's own library chooses");
        check_backends(config_, loader_.names());
        job_.local_ranks = 1;
        settings_.transport = "nccl";
        settings_.axis_transport.clear();
        for (const Axis& axis : settings_.mesh.axes())
            if (axis.size > 1) contracts_[axis.name] = accelerator_contract();
    }

    /// Nobody counts the scratch of kernels that are not here.
    std::unique_ptr<Device> counting_device(const Job&, const Settings&) override { return nullptr; }

    CompileOptions training_options(Device* device) override {
        CompileOptions options = ScriptRunner::training_options(device);
        if (quick) {
            options.proved = options.fingerprinted = false;
            options.written_micros = 0;
        }
        options.memory_bytes = 0;  // the cluster's memory is looked at behind the prediction, which says by how much
        return options;
    }

    void compile(Experiment experiment) override {
        refuse_idle_axes(experiment, config_.table("mesh"));
        experiment_ = std::move(experiment);
        compiled_ = compile_training(*experiment_, training_options(nullptr));
    }
};

}  // namespace

std::map<int64_t, double> slow_ranks(const std::vector<std::string>& given, int64_t ranks) {
    std::map<int64_t, double> slow;
    for (const std::string& text : given) {
        const size_t colon = text.find(':');
        char* end = nullptr;
        const double by = colon == std::string::npos ? 0 : std::strtod(text.c_str() + colon + 1, &end);
        char* rank_end = nullptr;
        const int64_t rank = std::strtoll(text.c_str(), &rank_end, 10);
        if (colon == std::string::npos || rank_end != text.c_str() + colon || *end != 0 || !(by >= 1) || rank < 0 ||
            rank >= ranks)
            throw Error(
                fmt::format("--slow {}: give RANK:TIMES, a rank below {} and how many times as long its kernels "
                            "take, 1 or more, as in --slow 5:1.5",
                            text, ranks),
                Fault::usage);
        slow[rank] = by;
    }
    return slow;
}

Cluster read_cluster(const std::string& path, int64_t nodes) {
    Config file = load_toml(path);
    Cluster cluster(file);
    return nodes > 0 ? cluster.with_nodes(nodes) : cluster;
}

Forecast forecast(const ScriptCommand& given, const Cluster& cluster, const SimulateCommand& command) {
    ScriptCommand asked = given;
    asked.nodes = 0;  // as many as it takes
    SimulateScript script(asked, Job{});
    script.quick = command.quick;
    script.run_script();
    Forecast made;
    made.compiled = script.compiled();
    made.options = script.declared;
    const Plan& plan = made.compiled.train();
    const Mapping mapping(cluster, plan.mesh, command.mapping);
    made.mapping = mapping.text();
    const Constants constants;
    ClusterPrices prices(cluster, plan.mesh, mapping, constants, command.software);
    SimulateOptions options;
    options.slow = slow_ranks(command.slow, plan.mesh.ranks());
    options.jitter = command.jitter;
    options.every_launch = !command.trace.empty();
    if (const auto tp = plan.mesh.find("tp"); tp && command.tp_chunks > 0) {
        const TpChunked chunked = tp_chunked(plan, *tp, command.tp_chunks);
        made.cut = chunked.cut;
        made.cut_of = chunked.all;
        options.mapped = chunked.chunks;
        made.run = simulate(chunked.plan, made.compiled.contracts, prices, options);
    } else {
        made.run = simulate(plan, made.compiled.contracts, prices, options);
    }
    const DType type = script.experiment().recipe->precision;
    const std::string precision(type == DType::f8e4m3 ? "fp8" : name_of(type));
    made.prediction = predict(made.compiled, made.run, cluster, mapping, precision, command.restart_s);
    return made;
}

}  // namespace orrery
