#include "published/score.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "published/accelerators.h"
#include "published/words.h"

namespace orrery::published {
namespace {

double mean_error(const std::vector<Scored>& rows) {
    double sum = 0;
    for (const Scored& one : rows) sum += one.error();
    return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

std::vector<double> ranks(const std::vector<double>& values) {
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
    std::vector<double> all(values.size());
    for (size_t i = 0; i < order.size();) {
        size_t end = i;
        while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
        for (size_t j = i; j < end; ++j) all[order[j]] = static_cast<double>(i + end - 1) / 2;
        i = end;
    }
    return all;
}

std::string group_line(const std::string& name, const std::vector<Scored>& rows) {
    std::vector<double> errors, bias;
    for (const Scored& one : rows) {
        errors.push_back(one.error());
        bias.push_back(one.prediction.step_s / one.label.measured.step_s - 1);
    }
    return fmt::format("  {:44} {:4} {:7.1f} {:7.1f} {:7.1f} {:8.1f}\n", name, rows.size(), 100 * mean_error(rows),
                       100 * median_of(errors), 100 * *std::max_element(errors.begin(), errors.end()),
                       100 * median_of(bias));
}

std::string groups(const std::string& title, const std::vector<Scored>& rows,
                   const std::function<std::string(const Scored&)>& key, size_t least) {
    std::string text =
        fmt::format("\n  {:44} {:>4} {:>7} {:>7} {:>7} {:>8}\n", title, "rows", "mean %", "median", "worst", "bias %");
    for (const auto& [name, members] : by(rows, key, least)) text += group_line(name, members);
    return text;
}

std::string family_and_precision(const Scored& one) {
    return fmt::format("{}, {}", one.label.family, one.label.precision);
}

/// Runs that ran with a predicted peak more than 3 % above their device's memory.
std::string too_large_text(const std::vector<Scored>& rows) {
    std::string text;
    int count = 0;
    for (const Scored& one : rows) {
        const double device = accelerator_facts(accelerator_of(one.row.gpu)).memory_gib;
        if (one.prediction.peak_gib <= 1.03 * device) continue;
        ++count;
        text += fmt::format("    {:58} {:.1f} GiB of {:.0f}\n", one.row.id, one.prediction.peak_gib, device);
    }
    return fmt::format("predicted above their device's memory by more than 3 %: {} rows\n{}", count, text);
}

std::string memory_text(const std::vector<Scored>& rows) {
    std::vector<double> errors;
    for (const Scored& one : rows)
        if (one.label.measured.peak_gib > 0)
            errors.push_back(std::abs(one.prediction.published_gib / one.label.measured.peak_gib - 1));
    if (errors.empty()) return "";
    const auto near = std::count_if(errors.begin(), errors.end(), [](double e) { return e <= 0.15; });
    return fmt::format("peak memory: {} rows, median {:.1f} %, {:.0f} % within 15 %\n", errors.size(),
                       100 * median_of(errors), 100.0 * static_cast<double>(near) / static_cast<double>(errors.size()));
}

}  // namespace

std::string each_text(const std::vector<Scored>& rows) {
    std::string text;
    for (const Scored& one : rows)
        text +=
            fmt::format("    {:58} predicted {:8.4g} s, measured {:8.4g} s, {:+.1f} %{}\n", one.row.id,
                        one.prediction.step_s, one.label.measured.step_s,
                        100 * (one.prediction.step_s / one.label.measured.step_s - 1), one.guessed ? ", guessed" : "");
    return text;
}

double Scored::measured_tokens_per_s() const {
    return static_cast<double>(row.batch * row.tokens) / label.measured.step_s / static_cast<double>(row.gpus);
}

double percentile(std::vector<double> values, double part) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const double place = part * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const double above = values[std::min(below + 1, values.size() - 1)];
    return values[below] + (place - static_cast<double>(below)) * (above - values[below]);
}

double median_of(std::vector<double> values) { return percentile(std::move(values), 0.5); }

std::vector<std::pair<std::string, std::vector<Scored>>> by(const std::vector<Scored>& rows,
                                                            const std::function<std::string(const Scored&)>& key,
                                                            size_t least) {
    std::map<std::string, std::vector<Scored>> all;
    for (const Scored& one : rows) all[key(one)].push_back(one);
    std::vector<std::pair<std::string, std::vector<Scored>>> large;
    std::vector<Scored> pooled;
    for (auto& [name, members] : all) {
        if (members.size() >= least)
            large.emplace_back(name, std::move(members));
        else
            pooled.insert(pooled.end(), members.begin(), members.end());
    }
    if (!pooled.empty()) large.emplace_back("(families of fewer rows, pooled)", std::move(pooled));
    return large;
}

Summary summary_of(const std::vector<Scored>& rows) {
    Summary s;
    s.rows = rows.size();
    std::vector<double> errors;
    for (const Scored& one : rows) errors.push_back(one.error());
    s.median = median_of(errors);
    s.within = static_cast<double>(std::count_if(errors.begin(), errors.end(), [](double e) { return e <= 0.15; })) /
               std::max<double>(1, static_cast<double>(errors.size()));
    const auto families = by(
        rows, [](const Scored& one) { return one.label.family; }, least_family);
    for (const auto& [name, members] : families)
        s.families += mean_error(members) / static_cast<double>(families.size());
    return s;
}

double spearman(const std::vector<double>& a, const std::vector<double>& b) {
    const std::vector<double> x = ranks(a), y = ranks(b);
    const double middle = (static_cast<double>(x.size()) - 1) / 2;
    double xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        xy += (x[i] - middle) * (y[i] - middle);
        xx += (x[i] - middle) * (x[i] - middle);
        yy += (y[i] - middle) * (y[i] - middle);
    }
    return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

std::vector<Sweep> sweeps(const std::vector<Scored>& rows) {
    std::vector<Sweep> all;
    const auto key = [](const Scored& one) {
        return fmt::format("{}, {}, {}, {}", one.label.family, one.label.model, one.label.accelerator,
                           one.label.precision);
    };
    for (const auto& [name, members] : by(rows, key)) {
        std::vector<double> predicted, measured;
        for (const Scored& one : members) {
            predicted.push_back(one.prediction.tokens_per_s);
            measured.push_back(one.measured_tokens_per_s());
        }
        const auto [least, most] = std::minmax_element(measured.begin(), measured.end());
        if (members.size() < 6 || *most < 1.2 * *least) continue;
        all.push_back({name, members.size(), spearman(predicted, measured)});
    }
    return all;
}

std::vector<Pair> scaling_pairs(const std::vector<Scored>& rows) {
    std::vector<Pair> pairs;
    const auto key = [](const Scored& one) {
        const Row& r = one.row;
        return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", one.label.family, r.model, r.gpu, r.precision,
                           r.tokens, r.tp, r.pp, r.chunks.value_or(0), r.micro_batch.value_or(0), r.recompute, r.zero,
                           r.notes, static_cast<double>(r.batch) / static_cast<double>(r.dp));
    };
    for (auto [name, members] : by(rows, key)) {
        std::stable_sort(members.begin(), members.end(),
                         [](const Scored& a, const Scored& b) { return a.row.gpus < b.row.gpus; });
        for (size_t i = 1; i < members.size(); ++i) {
            const Scored &a = members[i - 1], &b = members[i];
            if (a.row.gpus == b.row.gpus) continue;
            pairs.push_back({a.row.id, b.row.id, b.prediction.tokens_per_s / a.prediction.tokens_per_s,
                             b.measured_tokens_per_s() / a.measured_tokens_per_s()});
        }
    }
    return pairs;
}

std::vector<Equal> equal_rows(const std::vector<Scored>& rows) {
    std::vector<Equal> all;
    const auto key = [](const Scored& one) {
        const Row& r = one.row;
        return fmt::format("{} {} {} {} {} heads {} {} {} {} {} tokens {} tp {} pp {} dp {} {} {} {} {} {}", r.gpu,
                           r.gpus, r.model, r.layers, r.embed, r.heads, r.kv_heads, r.mlp, r.vocab, r.precision,
                           r.tokens, r.tp, r.pp, r.dp, r.zero, r.micro_batch.value_or(0), r.batch, r.recompute,
                           r.chunks.value_or(0));
    };
    for (const auto& [name, members] : by(rows, key)) {
        if (members.size() < 2) continue;
        std::vector<double> times;
        for (const Scored& one : members) times.push_back(one.label.measured.step_s);
        Equal group{members[0].row.id, members.size(), INFINITY, 0};
        for (const double guess : times) {
            double sum = 0;
            for (const double time : times) sum += std::abs(guess / time - 1) / static_cast<double>(times.size());
            group.floor = std::min(group.floor, sum);
        }
        const auto [least, most] = std::minmax_element(times.begin(), times.end());
        group.spread = *most / *least - 1;
        all.push_back(group);
    }
    return all;
}

bool fitted_to(const Row& row) { return row.cp == 1 && row.ep == 1; }

std::string report(const std::vector<Scored>& all_rows) {
    std::vector<Scored> rows, contexts, experts;
    for (const Scored& one : all_rows) (fitted_to(one.row) ? rows : one.row.ep > 1 ? experts : contexts).push_back(one);
    std::string held_out;
    if (!contexts.empty())
        held_out += groups("context parallelism, nothing fitted to it", contexts, family_and_precision, 1);
    if (!experts.empty())
        held_out +=
            groups("expert parallelism, nothing fitted to it", experts, family_and_precision, 1) + each_text(experts);
    if (rows.empty()) return held_out;
    const Summary s = summary_of(rows);
    std::string text =
        fmt::format("{} rows: mean over families {:.1f} %, median over rows {:.1f} %, {:.1f} % of rows within 15 %\n",
                    s.rows, 100 * s.families, 100 * s.median, 100 * s.within);
    text += groups(
        "family", rows, [](const Scored& one) { return one.label.family; }, least_family);
    text += groups(
        "accelerator", rows, [](const Scored& one) { return one.label.accelerator; }, 1);
    text += groups(
        "software", rows, [](const Scored& one) { return words_of(one.row).software.name; }, 1);
    text += groups(
        "parallelism", rows, [](const Scored& one) { return one.parallelism; }, 1);
    text += "\n";
    const auto all = sweeps(rows);
    std::vector<double> correlations;
    for (const Sweep& sweep : all) {
        text += fmt::format("  sweep {:70} {:3} rows, Spearman {:.2f}\n", sweep.name, sweep.rows, sweep.correlation);
        correlations.push_back(sweep.correlation);
    }
    if (!all.empty())
        text += fmt::format("sweeps: {}, median Spearman {:.2f}, least {:.2f}\n", all.size(), median_of(correlations),
                            *std::min_element(correlations.begin(), correlations.end()));
    const auto pairs = scaling_pairs(rows);
    const auto near = std::count_if(pairs.begin(), pairs.end(), [](const Pair& pair) {
        return std::abs(pair.predicted / pair.measured - 1) <= 0.05;
    });
    if (!pairs.empty())
        text += fmt::format("scaling: {} pairs, {:.0f} % within 5 %\n", pairs.size(),
                            100.0 * static_cast<double>(near) / static_cast<double>(pairs.size()));
    text += memory_text(rows) + too_large_text(rows);
    const auto equal = equal_rows(rows);
    std::vector<double> floors;
    for (const Equal& group : equal) floors.push_back(group.floor);
    if (!equal.empty())
        text += fmt::format("rows of equal configuration: {} groups, floor {:.1f} to {:.1f} %, median {:.1f} %\n",
                            equal.size(), 100 * *std::min_element(floors.begin(), floors.end()),
                            100 * *std::max_element(floors.begin(), floors.end()), 100 * median_of(floors));
    return text + held_out;
}

}  // namespace orrery::published
