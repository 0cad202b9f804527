#include "run/preflight/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "base/text.h"
#include "run/preflight/outliers.h"

namespace orrery {
namespace {

using Text = std::string (*)(double);

std::string percent(double found, double of) { return fmt::format("{:.0f} %", 100 * found / of); }

std::string against(double found, double wanted, Text text, bool higher, std::string_view like) {
    if (higher) return fmt::format("{}, {} of {} {}", text(found), percent(found, wanted), like, text(wanted));
    return fmt::format("{}, {:.1f} times {} {}", text(found), found / wanted, like, text(wanted));
}

std::string below_bar(double found, double expected, double bar, Text text) {
    return fmt::format("{}, {} of the expected {}; the minimum is {:.0f} %", text(found), percent(found, expected),
                       text(expected), 100 * bar);
}

double middle_without(const std::vector<double>& values, size_t place) {
    std::vector<double> rest = values;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(place));
    return median(std::move(rest));
}

class Judge {
public:
    Judge(const PreflightFigures& figures, const ExpectedFigures& said, const PreflightBars& bars)
        : figures_(figures), said_(said), bars_(bars) {}

    std::vector<PreflightFinding> all() {
        ranks();
        storage();
        for (const bool one_node : {true, false}) {
            links(one_node);
            latencies(one_node);
        }
        collectives();
        std::stable_sort(found_.begin(), found_.end(), [](const PreflightFinding& a, const PreflightFinding& b) {
            if (a.checked != b.checked) return a.checked < b.checked;
            return std::abs(std::log(std::max(a.found, 1e-30) / std::max(a.wanted, 1e-30))) >
                   std::abs(std::log(std::max(b.found, 1e-30) / std::max(b.wanted, 1e-30)));
        });
        return std::move(found_);
    }

private:
    struct RankPart {
        Checked checked;
        const char* what;
        double RankFigures::*part;
        double ExpectedFigures::*expected;
        double bar;
        Text text;
    };

    /// Compares a figure of each rank with the expected one, and with those of other ranks that have the same device.
    void rank_part(const RankPart& rule) {
        std::map<std::string, std::vector<int64_t>> alike;
        for (size_t rank = 0; rank < figures_.ranks.size(); ++rank)
            alike[figures_.ranks[rank].device].push_back(static_cast<int64_t>(rank));
        for (const auto& [device, ranks] : alike) {
            std::vector<double> values;
            for (const int64_t rank : ranks) values.push_back(figures_.ranks[static_cast<size_t>(rank)].*rule.part);
            std::set<size_t> named;
            for (size_t i = 0; i < values.size(); ++i)
                if (const double expected = expected_by(ranks[i]).*rule.expected; values[i] < expected * rule.bar) {
                    named.insert(i);
                    name_rank(rule, ranks[i], values[i], expected * rule.bar,
                              below_bar(values[i], expected, rule.bar, rule.text));
                }
            for (const size_t i : outliers(values, {true, bars_.share, 3, 0})) {
                const double others = middle_without(values, i);
                if (named.count(i) == 0)
                    name_rank(rule, ranks[i], values[i], others,
                              against(values[i], others, rule.text, true, "the other ranks' median of"));
            }
        }
    }

    ExpectedFigures expected_by(int64_t rank) const {
        const RankFigures& one = figures_.ranks[static_cast<size_t>(rank)];
        return expected_of(said_, one.device, one.node);
    }

    void name_rank(const RankPart& rule, int64_t rank, double found, double wanted, const std::string& reason) {
        found_.push_back({rule.checked, rule.what, {rank}, rank_name(figures_, rank), reason, found, wanted, true});
    }

    void ranks() {
        using F = RankFigures;
        using E = ExpectedFigures;
        const double matrix = bars_.matrix;
        rank_part({Checked::matrix, "matrix rate of f32", &F::matrix_f32, &E::matrix_f32, matrix, flops_text});
        rank_part({Checked::matrix, "matrix rate of bf16", &F::matrix_bf16, &E::matrix_bf16, matrix, flops_text});
        rank_part({Checked::copy, "memory bandwidth", &F::copy_bytes, &E::memory_bytes, bars_.memory, bandwidth_text});
    }

    /// Compares nodes by the sum of their ranks' storage rates, since ranks of a node share a disk or network.
    void node_storage(const char* what, double RankFigures::*part) {
        std::vector<double> sums(static_cast<size_t>(figures_.nodes), 0);
        std::vector<std::vector<int64_t>> ranks(sums.size());
        for (size_t rank = 0; rank < figures_.ranks.size(); ++rank) {
            const RankFigures& one = figures_.ranks[rank];
            ranks[static_cast<size_t>(one.node)].push_back(static_cast<int64_t>(rank));
            sums[static_cast<size_t>(one.node)] += one.*part;
            if (!one.storage_problem.empty()) return;  // not comparable: the other ranks had more of the disk
        }
        for (const size_t node : outliers(sums, {true, bars_.storage_share, 3, 0})) {
            const double others = middle_without(sums, node);
            found_.push_back({Checked::storage, what, ranks[node],
                              group_name("node", static_cast<int64_t>(node), ranks[node]),
                              against(sums[node], others, bandwidth_text, true, "the other nodes' median of"),
                              sums[node], others, true});
        }
    }

    void storage() {
        double write = 0, read = 0;
        std::vector<int64_t> all;
        for (size_t rank = 0; rank < figures_.ranks.size(); ++rank) {
            const RankFigures& one = figures_.ranks[rank];
            const auto number = static_cast<int64_t>(rank);
            all.push_back(number);
            write += one.write_bytes;
            read += one.read_bytes;
            if (!one.storage_problem.empty())
                found_.push_back({Checked::storage,
                                  "storage",
                                  {number},
                                  rank_name(figures_, number),
                                  one.storage_problem,
                                  0,
                                  1,
                                  false});
        }
        const auto total = [&](const char* what, double found, double expected) {
            if (expected > 0 && found < bars_.storage * expected)
                found_.push_back({Checked::storage, what, all, "all ranks together",
                                  below_bar(found, expected, bars_.storage, bandwidth_text), found,
                                  bars_.storage * expected, true});
        };
        node_storage("storage write", &RankFigures::write_bytes);
        node_storage("storage read", &RankFigures::read_bytes);
        total("storage write", write, said_.storage_write_bytes);
        total("storage read", read, said_.storage_read_bytes);
    }

    struct LinkPart {
        const char* what;
        std::function<double(const PairFigures&)> part;
        bool higher;
        double share, least;
        Text text;
    };

    /// Reports ranks with a best link that is an outlier, then outliers among the links between other ranks. Returns
    /// the indices in figures_.pairs of the reported links and of all links of the reported ranks.
    std::set<size_t> link_part(const LinkPart& rule, bool one_node) {
        std::set<size_t> named;
        const OutlierRule far{rule.higher, rule.share, 3, rule.least};
        const char* where = one_node ? "inside a node" : "between nodes";
        std::map<int64_t, std::vector<double>> of_rank;
        for (const PairFigures& pair : figures_.pairs)
            if (pair.one_node == one_node)
                for (const int64_t rank : {pair.a, pair.b}) of_rank[rank].push_back(rule.part(pair));
        std::vector<double> best;
        std::vector<int64_t> ranks;
        for (const auto& [rank, values] : of_rank) {
            if (values.size() < 2) continue;
            ranks.push_back(rank);
            best.push_back(rule.higher ? *std::max_element(values.begin(), values.end())
                                       : *std::min_element(values.begin(), values.end()));
        }
        std::set<int64_t> blamed;
        for (const size_t i : outliers(best, far)) {
            blamed.insert(ranks[i]);
            const double others = middle_without(best, i);
            found_.push_back({Checked::link,
                              fmt::format("{} of all its links {}", rule.what, where),
                              {ranks[i]},
                              rank_name(figures_, ranks[i]),
                              "the best of them has " +
                                  against(best[i], others, rule.text, rule.higher, "the other ranks' median of"),
                              best[i],
                              others,
                              true});
        }
        std::vector<double> values;
        std::vector<size_t> places;
        for (size_t i = 0; i < figures_.pairs.size(); ++i) {
            const PairFigures& pair = figures_.pairs[i];
            if (pair.one_node != one_node) continue;
            if (blamed.count(pair.a) + blamed.count(pair.b) > 0) {
                named.insert(i);
                continue;
            }
            places.push_back(i);
            values.push_back(rule.part(pair));
        }
        for (const size_t i : outliers(values, far)) {
            named.insert(places[i]);
            const PairFigures& pair = figures_.pairs[places[i]];
            const double others = middle_without(values, i);
            name_link(pair, fmt::format("{} {}", rule.what, where), values[i], others,
                      against(values[i], others, rule.text, rule.higher, "the other links' median of"));
        }
        return named;
    }

    void name_link(const PairFigures& pair, const std::string& what, double found, double wanted,
                   const std::string& reason, Checked checked = Checked::link, bool again = true) {
        // If one direction is much slower, only that direction is named.
        const char* between = pair.there_bytes < 0.7 * pair.back_bytes   ? "->"
                              : pair.back_bytes < 0.7 * pair.there_bytes ? "<-"
                                                                         : "--";
        found_.push_back(
            {checked,
             what,
             {pair.a, pair.b},
             fmt::format("link {} {} {}", rank_name(figures_, pair.a), between, rank_name(figures_, pair.b)),
             reason,
             found,
             wanted,
             again});
    }

    static double one_way(const PairFigures& pair) { return std::min(pair.there_bytes, pair.back_bytes); }
    static double both_ways(const PairFigures& pair) { return pair.both_bytes; }

    void links(bool one_node) {
        for (const PairFigures& pair : figures_.pairs)
            if (pair.one_node == one_node && pair.wrong_bytes > 0)
                name_link(pair, "data", static_cast<double>(pair.wrong_bytes), 1,
                          fmt::format("{} bytes were corrupted in transit", pair.wrong_bytes), Checked::data, false);
        const std::set<size_t> slow = link_part({"bandwidth", one_way, true, bars_.share, 0, bandwidth_text}, one_node);
        below("bandwidth one way", one_node, slow, one_way, 1);
        if (one_node) below("bandwidth both ways at once", one_node, slow, both_ways, 2);
    }

    /// Reports links below the bar that are not reported yet: each by itself, or, if most links are below, one line
    /// with the slowest.
    void below(const char* what, bool one_node, const std::set<size_t>& named, double (*part)(const PairFigures&),
               double ways) {
        const double bar = one_node ? bars_.node_link : bars_.fabric;
        // A link is expected to be as fast as the slower of its two ends, of those with a known rate.
        const auto expected = [&](size_t i) {
            const auto of = [&](int64_t rank) {
                const ExpectedFigures figures = expected_by(rank);
                return ways * (one_node ? figures.node_link_bytes : figures.fabric_bytes);
            };
            const double a = of(figures_.pairs[i].a), b = of(figures_.pairs[i].b);
            return one_node || (a > 0 && b > 0) ? std::min(a, b) : std::max(a, b);
        };
        std::vector<size_t> low;
        size_t all = 0;
        for (size_t i = 0; i < figures_.pairs.size(); ++i) {
            if (figures_.pairs[i].one_node != one_node) continue;
            ++all;
            if (named.count(i) == 0 && part(figures_.pairs[i]) < expected(i) * bar) low.push_back(i);
        }
        std::sort(low.begin(), low.end(),
                  [&](size_t a, size_t b) { return part(figures_.pairs[a]) < part(figures_.pairs[b]); });
        const std::string more = 2 * low.size() > all && low.size() > 2
                                     ? fmt::format("; {} of the {} links {} are slow, this one most", low.size(), all,
                                                   one_node ? "inside nodes" : "between nodes")
                                     : "";
        for (const size_t i : low) {
            const double found = part(figures_.pairs[i]);
            name_link(figures_.pairs[i], what, found, expected(i) * bar,
                      below_bar(found, expected(i), bar, bandwidth_text) + more);
            if (!more.empty()) break;
        }
    }

    void latencies(bool one_node) {
        // Smaller differences are ignored: they come from a scheduler's time slices and wake-ups, not from a link.
        const double least = !figures_.host_memory ? 10e-6 : one_node ? 3e-3 : 300e-6;
        link_part({"latency", [](const PairFigures& pair) { return pair.latency_s; }, false, bars_.latency_share, least,
                   seconds_text},
                  one_node);
    }

    void collectives() {
        std::map<std::pair<Reach, std::string>, std::vector<const CollectiveFigures*>> alike;
        for (const CollectiveFigures& one : figures_.collectives) {
            alike[{one.reach, one.name}].push_back(&one);
            if (one.wrong > 0)
                name_group(one, Checked::data, static_cast<double>(one.wrong), 1,
                           fmt::format("{} wrong elements", one.wrong), false);
        }
        for (const auto& [key, groups] : alike) {
            std::vector<double> values;
            for (const CollectiveFigures* one : groups) values.push_back(one->bus_bytes);
            for (const size_t i : outliers(values, {true, bars_.share, 3, 0}))
                name_group(
                    *groups[i], Checked::collective, values[i], middle_without(values, i),
                    against(values[i], middle_without(values, i), bandwidth_text, true, "the other groups' median of"),
                    true);
        }
    }

    void name_group(const CollectiveFigures& one, Checked checked, double found, double wanted,
                    const std::string& reason, bool again) {
        const char* kind = one.reach == Reach::node ? "node" : one.reach == Reach::rail ? "rail" : "all ranks";
        found_.push_back(
            {checked, one.name, one.ranks, group_name(kind, one.group, one.ranks), reason, found, wanted, again});
    }

    /// Names a group of ranks: "node 2 (host n2), ranks 4, 5", "rail 1, ranks 1, 3, 5".
    std::string group_name(std::string_view kind, int64_t number, const std::vector<int64_t>& ranks) const {
        std::vector<std::string> names;
        for (const int64_t rank : ranks) names.push_back(std::to_string(rank));
        std::string name(kind);
        if (kind != "all ranks") name += fmt::format(" {}", number);
        if (kind == "node") name += fmt::format(" (host {})", figures_.ranks[static_cast<size_t>(ranks.front())].host);
        return name + ", ranks " + join_few(names, 8);
    }

    const PreflightFigures& figures_;
    const ExpectedFigures& said_;
    const PreflightBars& bars_;
    std::vector<PreflightFinding> found_;
};

}  // namespace

std::vector<PreflightFinding> judge(const PreflightFigures& figures, const ExpectedFigures& expected,
                                    const PreflightBars& bars) {
    return Judge(figures, expected, bars).all();
}

std::string flops_text(double flops_per_s) { return short_text(flops_per_s) + "FLOP/s"; }
std::string bandwidth_text(double bytes_per_s) { return short_text(bytes_per_s) + "B/s"; }

std::string rank_name(const PreflightFigures& figures, int64_t rank) {
    return fmt::format("rank {} (host {})", rank, figures.ranks[static_cast<size_t>(rank)].host);
}

}  // namespace orrery
