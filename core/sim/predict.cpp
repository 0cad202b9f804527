#include "sim/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/failures/checkpoint_interval.h"
#include "base/text.h"

namespace orrery {
namespace {

double bytes_of_state(const Program& program) {
    double bytes = 0;
    for (ValueId id = 0; id < static_cast<ValueId>(program.values.size()); ++id) {
        const Value& value = program.value(id);
        if (value.role == Role::param || value.role == Role::state) bytes += static_cast<double>(value.type.bytes());
    }
    return bytes;
}

std::vector<std::string> names_of(const std::map<std::string, double>& rates) {
    std::vector<std::string> names;
    for (const auto& [name, rate] : rates) names.push_back(name);
    return names;
}

double rate_of(const Accelerator& accelerator, const std::string& precision) {
    const auto found = accelerator.dense_flops.find(precision);
    if (found == accelerator.dense_flops.end() || found->second <= 0)
        throw Error(fmt::format(
            "{0} has no rate for matrix products of {1}; it has {2}\n  give it in [accelerator.{0}.dense_tflops] of "
            "the cluster's file, or take another train.precision",
            accelerator.name, precision, join(names_of(accelerator.dense_flops), ", ")));
    return found->second;
}

void find_memory(Prediction& p, const Compiled& compiled, const Cluster& cluster, const Mapping& mapping,
                 const std::vector<int64_t>& memory) {
    const std::vector<ArenaBytes> arenas = compiled.arenas();
    bool first = true;
    for (size_t k = 0; k < arenas.size(); ++k) {
        const int64_t bytes = memory.empty() ? arenas[k].both() : memory[k];
        p.memory_least = first ? bytes : std::min(p.memory_least, bytes);
        for (const int64_t rank : compiled.train().classes[k].ranks) {
            const double limit = cluster.kind_of(mapping.slot(rank)).accelerator.memory_bytes;
            if (!first && limit != p.memory_limit) p.several_kinds = true;
            // Compares memory left by differences, which are exact if both accelerators have the same limit.
            if (first || static_cast<double>(bytes - p.memory_bytes) > limit - p.memory_limit) {
                p.memory_rank = rank;
                p.memory_bytes = bytes;
                p.memory_limit = limit;
            }
            first = false;
        }
    }
}

void find_slowest(Prediction& p, const Simulated& run) {
    for (const ActorTime& time : run.actors) {
        if (time.computing / run.step_s <= p.slowest_computing) continue;
        p.slowest_computing = time.computing / run.step_s;
        p.slowest = time.rank;
    }
}

void add_failures(Prediction& p, const Compiled& compiled, const Cluster& cluster, double restart_s) {
    p.state_bytes = bytes_of_state(compiled.train().program);
    if (cluster.storage.write_bytes_s > 0) p.checkpoint_s = p.state_bytes / cluster.storage.write_bytes_s;
    if (cluster.storage.read_bytes_s > 0) p.restore_s = p.state_bytes / cluster.storage.read_bytes_s;
    const double rate = cluster.failures_per_s();
    if (rate <= 0) return;
    p.between_failures_s = 1 / rate;
    if (p.checkpoint_s <= 0) return;
    const CheckpointTimes times{p.checkpoint_s, restart_s + p.restore_s, p.between_failures_s};
    p.interval_s = best_checkpoint_interval(times);
    p.goodput = goodput(times, p.interval_s);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

}  // namespace

StepShares shares_of(const Simulated& run, const Mesh& mesh, double step_s) {
    StepShares shares;
    double ranks = 0;
    for (const ActorTime& time : run.actors) ranks += static_cast<double>(time.ranks);
    for (const ActorTime& time : run.actors) {
        const double weight = static_cast<double>(time.ranks) / ranks / step_s;
        shares.computing += time.computing * weight;
        shares.waiting += time.waiting * weight;
        for (const auto& [axis, seconds] : time.exposed) shares.exposed[mesh.axis(axis).name] += seconds * weight;
    }
    return shares;
}

double mean_rate(const Cluster& cluster, int64_t ranks, const std::string& precision) {
    const double first = rate_of(cluster.kinds.front().accelerator, precision);
    double mean = first;  // the mean rate; a sum of differences, so that it is exact if all rates are equal
    const std::vector<int64_t> by_kind = cluster.ranks_by_kind(ranks);
    for (size_t k = 0; k < by_kind.size() && by_kind[k] > 0; ++k)
        mean += (rate_of(cluster.kinds[k].accelerator, precision) - first) * static_cast<double>(by_kind[k]) /
                static_cast<double>(ranks);
    return mean;
}

double price_per_s(const Cluster& cluster, int64_t ranks) {
    double price = 0;
    const std::vector<int64_t> by_kind = cluster.ranks_by_kind(ranks);
    for (size_t k = 0; k < by_kind.size(); ++k) {
        const double of_one = cluster.kinds[k].accelerator.price_hour / 3600;
        if (by_kind[k] > 0 && of_one <= 0) return 0;
        price += static_cast<double>(by_kind[k]) * of_one;
    }
    return price;
}

Prediction predict(const Compiled& compiled, const Simulated& run, const Cluster& cluster, const Mapping& mapping,
                   const std::string& precision, double restart_s, const std::vector<int64_t>& memory) {
    Prediction p;
    p.ranks = compiled.mesh.ranks();
    p.step_s = run.step_s;
    p.tokens_per_s_rank = static_cast<double>(compiled.tokens_per_step) / run.step_s / static_cast<double>(p.ranks);
    p.rate_of = precision;
    p.rate = mean_rate(cluster, mapping.ranks(), precision);
    p.mfu = compiled.flops_per_step / run.step_s / static_cast<double>(p.ranks) / p.rate;
    p.mfu_full = compiled.full_flops_per_step / run.step_s / static_cast<double>(p.ranks) / p.rate;
    static_cast<StepShares&>(p) = shares_of(run, compiled.mesh, run.step_s);
    find_slowest(p, run);
    find_memory(p, compiled, cluster, mapping, memory);
    for (int64_t rank = 0; rank < mapping.ranks(); ++rank) {
        const Accelerator& one = cluster.kind_of(mapping.slot(rank)).accelerator;
        if (rate_of(one, precision) != p.rate) p.several_kinds = true;
        p.energy_j += one.power_w * run.step_s;
    }
    p.price = price_per_s(cluster, mapping.ranks()) * run.step_s;
    add_failures(p, compiled, cluster, restart_s);
    return p;
}

TrainingTerms terms_of(const Prediction& p, double tokens) {
    const double of_step = std::round(p.tokens_per_s_rank * p.step_s * static_cast<double>(p.ranks));
    TrainingTerms terms{tokens, of_step, {}, p.price / p.step_s};
    if (p.checkpoint_s > 0 && p.between_failures_s > 0) terms.goodput = p.goodput;
    return terms;
}

std::string text(const StepSpread& spread) {
    const std::string of = spread.software.empty() ? "all software" : spread.software;
    return fmt::format("{} of {}", plural(spread.rows, "published run"), of);
}

std::string text(const Prediction& p, const std::string& title) {
    std::string out = title + "\n";
    out += fmt::format("step        {}   ", seconds_text(p.step_s));
    if (p.tokens_per_s_rank > 0)
        out += fmt::format("{} tokens/s a rank   ", count_text(std::llround(p.tokens_per_s_rank)));
    out += fmt::format("MFU {} of {:.0f} TFLOP/s ({}{}){}\n", percent(p.mfu), p.rate / 1e12, p.rate_of,
                       p.several_kinds ? ", on average" : "",
                       p.mfu_full > p.mfu ? fmt::format(", {} counting masked pairs", percent(p.mfu_full)) : "");
    if (p.spread.rows > 0)
        out +=
            fmt::format("            {} to {}: p10 to p90 by the errors on {}, predicted by fits without them\n",
                        seconds_text(p.spread.low * p.step_s), seconds_text(p.spread.high * p.step_s), text(p.spread));
    out += fmt::format("time        computing {}", percent(p.computing));
    for (const auto& [axis, share] : p.exposed) out += fmt::format(", {} exposed {}", axis, percent(share));
    out += fmt::format(", waiting for other ranks {}\n", percent(p.waiting));
    if (p.ranks > 1)
        out += fmt::format("            slowest rank {}: computing {}\n", p.slowest, percent(p.slowest_computing));
    out += fmt::format("memory      {} of {} on {} at most, {} at least\n", bytes_text(p.memory_bytes),
                       bytes_text(static_cast<int64_t>(p.memory_limit)),
                       p.several_kinds ? fmt::format("rank {}", p.memory_rank) : "a rank", bytes_text(p.memory_least));
    const double tokens = p.tokens_per_s_rank * p.step_s * static_cast<double>(p.ranks);
    if (p.energy_j > 0) {
        const std::string energy = short_text(p.energy_j);
        out +=
            fmt::format("energy      {}{}J a step at rated power", energy, energy.find(' ') < energy.size() ? "" : " ");
        out += tokens > 0 ? fmt::format(", {:.3g} J a token\n", p.energy_j / tokens) : "\n";
    }
    if (p.price > 0) {
        out += fmt::format("price       {:.4g} a step", p.price);
        out += tokens > 0 ? fmt::format(", {:.4g} a million tokens\n", p.price / tokens * 1e6) : "\n";
    }
    if (p.checkpoint_s > 0)
        out += fmt::format("checkpoint  {} in {}", bytes_text(static_cast<int64_t>(p.state_bytes)),
                           seconds_text(p.checkpoint_s));
    if (p.checkpoint_s > 0 && p.restore_s > 0) out += fmt::format(", read in {}", seconds_text(p.restore_s));
    if (p.checkpoint_s > 0 && p.between_failures_s > 0)
        out += fmt::format("; a failure every {}: best interval {}, goodput {}", seconds_text(p.between_failures_s),
                           seconds_text(p.interval_s), percent(p.goodput));
    if (p.checkpoint_s > 0) out += "\n";
    if (p.checkpoint_s <= 0 && p.between_failures_s > 0)
        out += fmt::format(
            "failures    one every {}; goodput is not known: the cluster's file has no [storage] with "
            "write_gb_s\n",
            seconds_text(p.between_failures_s));
    return out;
}

void require_memory(const Prediction& p) {
    if (static_cast<double>(p.memory_bytes) <= p.memory_limit) return;
    throw Error(fmt::format(
        "out of memory: rank {} needs {}, its accelerator has {}: {} too much\n  split more (tp, pp, a higher ZeRO "
        "stage), take smaller micro-batches, or recompute; `orrery plan` searches for settings that fit",
        p.memory_rank, bytes_text(p.memory_bytes), bytes_text(static_cast<int64_t>(p.memory_limit)),
        bytes_text(p.memory_bytes - static_cast<int64_t>(p.memory_limit))));
}

}  // namespace orrery
