#include "cli/simulate/site.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/control_groups.h"
#include "base/processors.h"
#include "base/text.h"
#include "cli/script_runner.h"
#include "cli/simulate/forecast.h"
#include "cli/simulate/local_forecast.h"
#include "sim/local/local_costs.h"
#include "sim/local/local_kernels.h"

namespace orrery {
namespace {

/// What limits the speed of a choice: "memory" if it is nearly full, else the largest share of time besides computing.
std::string binds(const StepShares& shares, double memory, double limit) {
    if (limit > 0 && memory > 0.95 * limit) return "memory";
    std::string most = shares.waiting > 0.1 ? "bubble" : "";
    double share = std::max(0.1, shares.waiting);
    for (const auto& [axis, exposed] : shares.exposed)
        if (exposed > share) {
            share = exposed;
            most = axis;
        }
    return most.empty() ? "computing" : fmt::format("{} {:.0f} %", most, 100 * share);
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

double most_memory(const Cluster& cluster, int64_t ranks) {
    double most = 0;
    const std::vector<int64_t> by_kind = cluster.ranks_by_kind(ranks);
    for (size_t k = 0; k < by_kind.size(); ++k)
        if (by_kind[k] > 0) most = std::max(most, cluster.kinds[k].accelerator.memory_bytes);
    return most;
}

class OnCluster final : public Site {
public:
    explicit OnCluster(const SimulateCommand& how)
        : how_(how),
          cluster_(read_cluster(how.cluster, how.cluster_nodes)),
          measured_(measured_kernels(cluster_, how)) {}

    int64_t most_ranks() const override { return cluster_.accelerators(); }
    int64_t usual_ranks() const override { return cluster_.accelerators(); }
    int64_t usual_tp(int64_t) const override {
        int64_t widest = 0;
        for (const NodeKind& kind : cluster_.kinds) widest = std::max(widest, kind.accelerators);
        return widest;
    }
    int64_t usual_cp(int64_t, int64_t tokens) const override {
        constexpr int64_t fewest = 4096;  // of a row on a rank: shorter parts cost messages, and time to search
        return std::max<int64_t>(1, tokens / fewest);
    }
    std::string name() const override { return cluster_.name; }
    std::vector<std::string> facts() const override { return {cluster_.name, cluster_.text()}; }

    FirstLook first(const ScriptCommand& script, int64_t) override {
        Forecast made = forecast(script, cluster_, how_, measured());
        rate_of_ = made.prediction.rate_of;
        terms_.goodput = terms_of(made.prediction, how_.tokens).goodput;
        notes_ = std::move(made.differences);
        if (measured_) notes_.insert(notes_.begin(), measured_->notes.begin(), measured_->notes.end());
        if (how_.software != "orrery") notes_.insert(notes_.begin(), "software " + made.software);
        return {std::move(made.compiled), std::move(made.options), made.microbatches, std::move(made.recorded)};
    }

    std::vector<std::string> notes() const override { return notes_; }

    TrainingTerms terms(int64_t ranks) const override {
        TrainingTerms terms = terms_;
        terms.price_per_s = price_per_s(cluster_, ranks);
        return terms;
    }

    void describe(SearchSpace& space) const override {
        space.memory_limit = most_memory(cluster_, space.ranks);
        space.rate = mean_rate(cluster_, space.ranks, rate_of_);
        space.bytes_s = cluster_.kinds.front().accelerator.memory_bytes_s;
    }

    Judged judge(const ScriptCommand& script, const std::string& mapping) const override {
        SimulateCommand how = how_;
        how.quick = true;
        if (!mapping.empty()) how.mapping = split(mapping, ',');
        Judged made;
        try {
            const Forecast played = forecast(script, cluster_, how, measured());
            const Prediction& p = played.prediction;
            made.sources = played.sources;
            made.step_s = p.step_s;
            made.computing_s = p.computing * p.step_s;
            made.mfu = p.mfu;
            made.memory_bytes = p.memory_bytes;
            made.memory_limit = p.memory_limit;
            if (p.several_kinds) made.memory_rank = p.memory_rank;
            made.binds = binds(p, static_cast<double>(p.memory_bytes), p.memory_limit);
        } catch (const Error& error) {
            made.why_not = first_line(error.what());
        }
        return made;
    }

private:
    const MeasuredKernels* measured() const { return measured_ ? &*measured_ : nullptr; }

    const SimulateCommand how_;
    const Cluster cluster_;
    const std::optional<MeasuredKernels> measured_;
    std::string rate_of_;
    TrainingTerms terms_;
    std::vector<std::string> notes_;  ///< another software, and what it does otherwise than the configured script
};

/// Simulates on this machine. Ranks share its memory and processors, so a rank's bytes are the mean over all ranks.
class Here final : public Site {
public:
    Here(const ScriptCommand& script, const SimulateCommand& how)
        : how_(how), configured_(ScriptRunner(script, Job{}).settings) {
        if (const auto run = measured_by(script.script)) ran_on_ = static_cast<int64_t>(fact_of(*run, "processors", 0));
    }

    int64_t most_ranks() const override { return std::numeric_limits<int64_t>::max(); }
    int64_t usual_ranks() const override {
        if (how_.processors > 0) return how_.processors;
        return ran_on_ > 0 ? ran_on_ : usable_processors();
    }
    int64_t usual_tp(int64_t ranks) const override { return ranks; }
    int64_t usual_cp(int64_t ranks, int64_t) const override { return ranks; }
    std::string name() const override { return "this machine"; }

    std::vector<std::string> facts() const override {
        std::string memory = host_bytes_ > 0 ? ", " + bytes_text(static_cast<int64_t>(host_bytes_)) : "";
        return {fmt::format("{}{}", plural(static_cast<int64_t>(processors_), "processor"), memory),
                "costs from " + join(script_->tables, ", ")};
    }
    std::vector<std::string> notes() const override { return script_->notes; }

    FirstLook first(const ScriptCommand& given, int64_t ranks) override {
        ScriptCommand script = given;
        // Cached costs are for one number of threads per rank, but a mesh of one rank would use all threads.
        if (configured_.threads_per_rank == 0)
            script.sets.push_back(fmt::format("run.threads_per_rank={}", threads(ranks)));
        script_ = local_script(script, how_);
        processors_ = processors_of(script_->plain, how_);
        if (script_->host_memory) host_bytes_ = static_cast<double>(usable_memory());
        return {std::move(script_->compiled), script_->options, script_->microbatches, std::move(script_->recorded)};
    }

    void describe(SearchSpace& space) const override {
        const auto ranks = static_cast<double>(space.ranks);
        LocalKernels kernels = kernels_of(space.ranks, threads(space.ranks));
        space.memory_limit = host_bytes_ / ranks;
        space.rate = kernels.flops_per_s();
        if (const double copy_s = kernels.copy_s(1e9); copy_s > 0) space.bytes_s = 2e9 / copy_s;
        space.turns = std::max(1.0, ranks / kernels.at_once());
        space.faster = 1.5;  // upper bound: kernels run faster while other ranks wait
        space.near = 1.3;    // wide, since predictions are quick and micro-batches of one sample are far from optimal
        space.alike = 0.01;
        space.varies_mapping = false;
    }

    Judged judge(const ScriptCommand& script, const std::string&) const override {
        Judged made;
        try {
            const CompiledHere here = compiled_here(script, ran_on_);
            const LocalForecast played = local_forecast(here.compiled, here.settings, script_->plain, how_);
            const int64_t ranks = here.compiled.mesh.ranks();
            const StepShares shares = shares_of(played.run, here.compiled.mesh, played.step_s());
            made.step_s = played.step_s();
            made.sources = played.sources;
            made.computing_s = shares.computing * made.step_s;
            const LocalKernels kernels = kernels_of(ranks, here.compiled.train().threads_per_rank);
            const double rate = kernels.flops_per_s() * std::min(static_cast<double>(ranks), kernels.at_once());
            if (rate > 0) made.mfu = here.compiled.flops_per_step / made.step_s / rate;
            made.memory_bytes = bytes_of_all(here.compiled) / ranks;
            made.memory_limit = host_bytes_ / static_cast<double>(ranks);
            made.binds = binds(shares, static_cast<double>(made.memory_bytes), made.memory_limit);
        } catch (const Error& error) {
            made.why_not = first_line(error.what());
        }
        return made;
    }

private:
    LocalKernels kernels_of(int64_t ranks, int threads) const { return {script_->plain, threads, ranks, processors_}; }

    int threads(int64_t ranks) const {
        if (configured_.threads_per_rank == 0 && ran_on_ > 0) return static_cast<int>(threads_left(ran_on_, ranks));
        Job job;
        job.local_ranks = ranks;
        return threads_of(configured_, job);
    }

    static int64_t bytes_of_all(const Compiled& compiled) {
        const std::vector<ArenaBytes> arenas = compiled.arenas();
        int64_t bytes = 0;
        for (size_t k = 0; k < arenas.size(); ++k)
            bytes += arenas[k].both() * static_cast<int64_t>(compiled.train().classes[k].ranks.size());
        return bytes;
    }

    const SimulateCommand how_;
    const Settings configured_;
    std::optional<LocalScript> script_;
    int64_t ran_on_ = 0;                      ///< processors of the host that ran the script; 0: as this host
    double processors_ = 1, host_bytes_ = 0;  ///< number of processors; bytes of host memory, 0: not checked
};

}  // namespace

std::unique_ptr<Site> site_of(const ScriptCommand& script, const PlanCommand& command) {
    if (command.simulate.cluster.empty()) return std::make_unique<Here>(script, command.simulate);
    return std::make_unique<OnCluster>(command.simulate);
}

}  // namespace orrery
