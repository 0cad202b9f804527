#include "cli/simulate/forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "cli/script_runner.h"
#include "config/load.h"
#include "sim/cluster_prices.h"
#include "sim/contracts.h"
#include "sim/manners/tp_chunks.h"

namespace orrery {
namespace {

/// Compiles for a cluster: transports and devices are those of the cluster's file.
struct SimulateScript final : ScriptRunner {
    using ScriptRunner::ScriptRunner;

    std::map<std::string, std::string> declared;
    std::optional<GivenKey> microbatches;  ///< if a call sets them, whatever the configuration says
    bool quick = false;
    int64_t tp_chunks = 0;  ///< requested for this mesh
    bool tf32 = false;      ///< of device.cuda

    void print(const std::string&) override {}
    bool looks_only() const override { return true; }
    bool train_step_alone() const override { return quick; }
    bool speaks() const override { return !quick; }

    void declare_options(const std::vector<Option>& options) override {
        for (const Option& option : options) declared[option.key] = option.value;
    }

    void gives(const GivenKey& key) override {
        if (key.table == "train" && key.key == "microbatches" && !key.read_too) microbatches = key;
        ScriptRunner::gives(key);
    }

    void prepare() override {
        if (!settings_.collectives.empty())
            throw Error(config_.table("collectives").origin(),
                        "[collectives]: algorithms of a script are not simulated on clusters\n  leave the table out: "
                        "the cluster's own library chooses");
        require_tp();
        check_backends(config_, loader_.names());
        tf32 = config_.table("device").table("cuda").flag("tf32", false);
        job_.local_ranks = 1;
        settings_.transport = "nccl";
        settings_.axis_transport.clear();
        for (const Axis& axis : settings_.mesh.axes())
            if (axis.size > 1) contracts_[axis.name] = accelerator_contract();
    }

    void require_tp() const {
        const auto tp = settings_.mesh.find("tp");
        if (tp_chunks > 0 && (!tp || settings_.mesh.size(*tp) == 1))
            throw Error(
                fmt::format("--tp-chunks {}: the mesh {} has no collectives of tp to cut\n  set mesh.tp, or "
                            "leave --tp-chunks out",
                            tp_chunks, settings_.mesh.text()));
    }

    /// Kernel scratch is not counted, since the cluster's device is not available.
    std::unique_ptr<Device> counting_device(const Job&, const Settings&) override { return nullptr; }

    SnapshotPlace snapshot_place() const override { return SnapshotPlace::host; }

    CompileOptions training_options(Device* device) override {
        CompileOptions options = ScriptRunner::training_options(device);
        if (quick) {
            options.proved = options.fingerprinted = false;
            options.written_micros = 0;
        }
        options.memory_bytes = 0;  // checked after the prediction, which says by how much it is exceeded
        return options;
    }

    void compile(Experiment experiment) override {
        refuse_idle_axes(experiment, config_.table("mesh"));
        experiment_ = std::move(experiment);
        compiled_ = compile_training(*experiment_, training_options(nullptr));
    }
};

/// Parses a text that is only a number.
template <class T>
std::optional<T> whole(std::string_view text) {
    T value{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

/// Name of the cluster's rate at which the job's products run, the base of MFU.
std::string rate_name(DType precision, const std::string& software, bool tf32, const Cluster& cluster) {
    if (precision == DType::f32) return tf32 ? "tf32" : "f32";
    const bool eight_bit = precision == DType::f8e4m3 || (software == "eight_bit" && multiplies_eight_bits(cluster));
    return eight_bit ? "fp8" : std::string(name_of(precision));
}

}  // namespace

std::map<int64_t, double> slow_ranks(const std::vector<std::string>& given, int64_t ranks) {
    constexpr double most = 1e6;
    std::map<int64_t, double> slow;
    for (const std::string& text : given) {
        const size_t colon = std::min(text.size(), text.find(':'));
        const auto rank = whole<int64_t>(std::string_view(text).substr(0, colon));
        const auto by = whole<double>(std::string_view(text).substr(std::min(text.size(), colon + 1)));
        if (!rank || !by || *rank < 0 || *rank >= ranks || !(*by >= 1 && *by <= most))
            throw Error(
                fmt::format("--slow {}: give RANK:TIMES, a rank below {} and how many times as long its kernels "
                            "take, from 1 to {:.0f}, as in --slow 5:1.5",
                            text, ranks, most),
                Fault::usage);
        if (!slow.emplace(*rank, *by).second)
            throw Error(fmt::format("--slow {}: rank {} is there twice\n  leave one of them out", text, *rank),
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

Forecast forecast(const ScriptCommand& given, const Cluster& cluster, const SimulateCommand& command) {
    ScriptCommand asked = given;
    asked.nodes = 0;  // as many hosts as needed
    SimulateScript script(asked, Job{});
    script.quick = command.quick;
    if (!command.searched) script.tp_chunks = command.tp_chunks;
    script.run_script();
    Forecast made;
    made.compiled = script.compiled();
    made.options = script.declared;
    made.microbatches = script.microbatches;
    const Plan& plan = made.compiled.train();
    const Mapping mapping(cluster, plan.mesh, command.mapping);
    made.mapping = mapping.text();
    const Constants constants;
    ClusterPrices prices(cluster, plan.mesh, mapping, constants, command.software, script.tf32);
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
    const std::string rate = rate_name(script.experiment().recipe->precision, command.software, script.tf32, cluster);
    made.prediction = predict(made.compiled, made.run, cluster, mapping, rate, command.restart_s);
    return made;
}

}  // namespace orrery
