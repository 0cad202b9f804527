#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "cli/preflight/preflight.h"
#include "run/preflight/outliers.h"

namespace orrery {
namespace {

constexpr size_t most_lines = 16;  ///< max lines of ranks or links; of more, only min, median and max are printed

const char* name_of(Reach reach) {
    switch (reach) {
        case Reach::node: return "node";
        case Reach::rail: return "rail";
        case Reach::all: break;
    }
    return "all";
}

const char* name_of(Checked checked) {
    switch (checked) {
        case Checked::matrix: return "matrix";
        case Checked::copy: return "copy";
        case Checked::storage: return "storage";
        case Checked::link: return "link";
        case Checked::collective: return "collective";
        case Checked::data: break;
    }
    return "data";
}

template <class Text>
std::string or_dash(double value, Text text) {
    return value > 0 ? text(value) : "-";
}

class Table {
public:
    explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

    std::string text() const {
        std::vector<size_t> widths(rows_.front().size());
        for (const auto& row : rows_)
            for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
        std::string all;
        for (const auto& row : rows_) {
            std::string line;
            for (size_t i = 0; i < row.size(); ++i)
                line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
            all += line + '\n';
        }
        return all;
    }

private:
    std::vector<std::vector<std::string>> rows_;
};

std::vector<std::string> cells(const RankFigures& one) {
    return {or_dash(one.matrix_f32, flops_text),     or_dash(one.matrix_bf16, flops_text),
            or_dash(one.copy_bytes, bandwidth_text), or_dash(one.write_bytes, bandwidth_text),
            or_dash(one.read_bytes, bandwidth_text), or_dash(one.sync_s, seconds_text)};
}

std::string many_ranks(const std::vector<RankFigures>& ranks, Table table) {
    const auto pick = [&](double part) {
        RankFigures one;
        for (const auto number : {&RankFigures::matrix_f32, &RankFigures::matrix_bf16, &RankFigures::copy_bytes,
                                  &RankFigures::write_bytes, &RankFigures::read_bytes, &RankFigures::sync_s}) {
            std::vector<double> values;
            for (const RankFigures& rank : ranks) values.push_back(rank.*number);
            std::sort(values.begin(), values.end());
            one.*number = values[static_cast<size_t>(std::lround(part * static_cast<double>(values.size() - 1)))];
        }
        return cells(one);
    };
    for (const auto& [name, part] : {std::pair{"least", 0.0}, {"median", 0.5}, {"most", 1.0}}) {
        std::vector<std::string> row = pick(part);
        row.insert(row.begin(), name);
        table.add(std::move(row));
    }
    return table.text();
}

std::string ranks_text(const PreflightFigures& figures) {
    Table table({"rank", "f32", "bf16", "copy", "write", "read", "fsync"});
    if (figures.ranks.size() > most_lines) return many_ranks(figures.ranks, std::move(table));
    for (size_t rank = 0; rank < figures.ranks.size(); ++rank) {
        std::vector<std::string> row = cells(figures.ranks[rank]);
        row.insert(row.begin(), fmt::format("{} {}", rank, figures.ranks[rank].host));
        table.add(std::move(row));
    }
    return table.text();
}

std::vector<std::string> cells(std::string name, const PairFigures& pair) {
    return {std::move(name), seconds_text(pair.latency_s), bandwidth_text(pair.there_bytes),
            bandwidth_text(pair.back_bytes), bandwidth_text(pair.both_bytes)};
}

std::string links_text(const PreflightFigures& figures, bool one_node) {
    std::vector<PairFigures> pairs;
    for (const PairFigures& pair : figures.pairs)
        if (pair.one_node == one_node) pairs.push_back(pair);
    if (pairs.empty()) return "";
    Table table({one_node ? "links inside nodes" : "links between nodes", "latency", "there", "back", "both ways"});
    if (pairs.size() <= most_lines) {
        for (const PairFigures& pair : pairs) table.add(cells(fmt::format("{} - {}", pair.a, pair.b), pair));
        return table.text() + "\n";
    }
    const auto slower = [](const PairFigures& x, const PairFigures& y) {
        return std::min(x.there_bytes, x.back_bytes) < std::min(y.there_bytes, y.back_bytes);
    };
    std::sort(pairs.begin(), pairs.end(), slower);
    for (const auto& [name, place] :
         {std::pair{"slowest", size_t{0}}, {"median", pairs.size() / 2}, {"fastest", pairs.size() - 1}})
        table.add(
            cells(fmt::format("{} of {}: {} - {}", name, pairs.size(), pairs[place].a, pairs[place].b), pairs[place]));
    return table.text() + "\n";
}

std::string collectives_text(const PreflightFigures& figures) {
    if (figures.collectives.empty()) return "";
    Table table({"collective", "among", "groups", "size", "time", "bus bandwidth", "latency"});
    std::map<std::pair<Reach, std::string>, std::vector<const CollectiveFigures*>> alike;
    for (const CollectiveFigures& one : figures.collectives) alike[{one.reach, one.name}].push_back(&one);
    for (const auto& [key, groups] : alike) {
        const CollectiveFigures& one = **std::min_element(
            groups.begin(), groups.end(), [](const auto* x, const auto* y) { return x->bus_bytes < y->bus_bytes; });
        table.add({one.name,
                   fmt::format("{} of {}", one.ranks.size(),
                               one.reach == Reach::node   ? "a node"
                               : one.reach == Reach::rail ? "a rail"
                                                          : "all nodes"),
                   std::to_string(groups.size()), bytes_text(one.bytes), seconds_text(one.seconds),
                   bandwidth_text(one.bus_bytes), seconds_text(one.latency_s)});
    }
    return table.text() + "\n";
}

std::vector<std::pair<std::string, double>> named(const PreflightBars& bars) {
    return {{"matrix rate", bars.matrix},
            {"memory bandwidth", bars.memory},
            {"link inside a node", bars.node_link},
            {"fabric", bars.fabric},
            {"storage", bars.storage}};
}

double unit_of(const std::string& key) { return key.ends_with("_tflops") ? 1e12 : 1e9; }

bool measured(const PreflightFigures& figures, const std::string& key) {
    const auto any_rank = [&](double RankFigures::*part) {
        return std::any_of(figures.ranks.begin(), figures.ranks.end(), [&](const auto& one) { return one.*part > 0; });
    };
    const auto any_pair = [&](bool one_node) {
        return std::any_of(figures.pairs.begin(), figures.pairs.end(),
                           [&](const PairFigures& pair) { return pair.one_node == one_node; });
    };
    if (key == "matrix_f32_tflops") return any_rank(&RankFigures::matrix_f32);
    if (key == "matrix_bf16_tflops") return any_rank(&RankFigures::matrix_bf16);
    if (key == "memory_gb_s") return any_rank(&RankFigures::copy_bytes);
    if (key == "node_link_gb_s") return any_pair(true);
    if (key == "fabric_gb_s") return any_pair(false);
    return any_rank(key == "storage_write_gb_s" ? &RankFigures::write_bytes : &RankFigures::read_bytes);
}

/// Measured figures without an expected value, "matrix_f32_tflops of node 1"; a link needs one value for both ends.
std::vector<std::string> not_judged(const PreflightReport& report) {
    std::map<std::string, std::set<int64_t>> nodes;
    std::vector<std::string> keys;
    for (const auto& [key, value] : named(report.expected))
        if (measured(report.figures, key)) keys.push_back(key);
    for (const RankFigures& one : report.figures.ranks) {
        const auto figures = named(expected_of(report.expected, one.device, one.node));
        for (const auto& [key, value] : figures)
            if (!(value > 0)) nodes[key].insert(one.node);
    }
    std::vector<std::string> texts;
    for (const std::string& key : keys) {
        const std::set<int64_t>& of = nodes[key];
        const bool all = static_cast<int64_t>(of.size()) == report.figures.nodes;
        if (of.empty() || (!all && key == "fabric_gb_s")) continue;
        std::vector<std::string> numbers;
        for (const int64_t node : of) numbers.push_back(std::to_string(node));
        texts.push_back(all ? key
                            : fmt::format("{} of {} {}", key, of.size() == 1 ? "node" : "nodes", join_few(numbers, 8)));
    }
    return texts;
}

/// Expected values that measurements were compared with, in the units of their keys. `without`: result of not_judged.
std::vector<std::pair<std::string, double>> judged_by(const PreflightReport& report,
                                                      const std::vector<std::string>& without) {
    std::vector<std::pair<std::string, double>> all;
    for (const auto& [name, value] : named(expected_of(report.expected, report.figures.ranks.front().device)))
        if (value > 0 && std::find(without.begin(), without.end(), name) == without.end())
            all.emplace_back(name, value / unit_of(name));
    return all;
}

std::string expected_text(const PreflightReport& report) {
    const std::string& device = report.figures.ranks.front().device;
    const std::vector<std::string> without = not_judged(report);
    std::vector<std::string> said, least;
    for (const auto& [name, value] : judged_by(report, without)) said.push_back(fmt::format("{} {:.4g}", name, value));
    if (said.empty() && report.expected_from.empty()) return "";
    for (const auto& [name, part] : named(report.bars)) least.push_back(fmt::format("{} {:.0f} %", name, 100 * part));
    return fmt::format("expected ({}): {}\nfit from: {}\n{}\n",
                       report.expected_from.empty() ? "data sheet of " + device : report.expected_from,
                       said.empty() ? "nothing of what was measured" : join(said, ", "), join(least, ", "),
                       without.empty() ? "" : fmt::format("held against no figure: {}\n", join(without, ", ")));
}

/// What the figures were compared with: "expected figures", "other ranks" or "nothing".
std::string compared_with(const PreflightReport& report) {
    if (!judged_by(report, not_judged(report)).empty()) return "expected figures";
    return report.figures.ranks.size() > 1 ? "other ranks" : "nothing";
}

/// The verdict and what it is based on: "fit", "fit, but ranks were only compared ...", "not fit: 2 findings".
std::string verdict_text(const PreflightReport& report) {
    if (!report.fit()) return "not fit: " + plural(static_cast<int64_t>(report.findings.size()), "finding");
    const std::string with = compared_with(report);
    if (with == "expected figures") return "fit";
    const std::string remedy = "no expected figures; give --cluster FILE or --expect KEY=NUMBER";
    return (with == "nothing" ? "nothing was compared: one rank and "
                              : "fit, but ranks were only compared with each other: ") +
           remedy;
}

Json expected_json(const PreflightReport& report) {
    const std::vector<std::string> without = not_judged(report);
    Json json = {{"from", report.expected_from}, {"bars", Json::object()}};
    for (const auto& [name, value] : judged_by(report, without)) json[name] = value;
    for (const auto& [name, part] : named(report.bars)) json["bars"][name] = part;
    json["held_against_nothing"] = without;
    return json;
}

Json json_of(const RankFigures& one) {
    return {{"host", one.host},
            {"node", one.node},
            {"device", one.device},
            {"matrix_f32_flops_per_s", one.matrix_f32},
            {"matrix_bf16_flops_per_s", one.matrix_bf16},
            {"copy_bytes_per_s", one.copy_bytes},
            {"write_bytes_per_s", one.write_bytes},
            {"read_bytes_per_s", one.read_bytes},
            {"sync_s", one.sync_s},
            {"storage_problem", one.storage_problem}};
}

Json json_of(const PairFigures& pair) {
    return {{"ranks", {pair.a, pair.b}},           {"one_node", pair.one_node},
            {"latency_s", pair.latency_s},         {"there_bytes_per_s", pair.there_bytes},
            {"back_bytes_per_s", pair.back_bytes}, {"both_bytes_per_s", pair.both_bytes},
            {"message_bytes", pair.message_bytes}, {"wrong_bytes", pair.wrong_bytes}};
}

Json json_of(const CollectiveFigures& one) {
    return {{"name", one.name},
            {"reach", name_of(one.reach)},
            {"group", one.group},
            {"ranks", one.ranks},
            {"bytes", one.bytes},
            {"seconds", one.seconds},
            {"bus_bytes_per_s", one.bus_bytes},
            {"latency_s", one.latency_s},
            {"wrong", one.wrong}};
}

Json json_of(const PreflightFinding& finding) {
    return {{"checked", name_of(finding.checked)},
            {"ranks", finding.ranks},
            {"subject", finding.subject},
            {"what", finding.what},
            {"reason", finding.reason},
            {"found", finding.found},
            {"wanted", finding.wanted}};
}

template <class List>
Json list_of(const List& list) {
    Json all = Json::array();
    for (const auto& one : list) all.push_back(json_of(one));
    return all;
}

}  // namespace

std::string preflight_text(const PreflightReport& report) {
    const PreflightFigures& figures = report.figures;
    std::string text = fmt::format("{} on {}: {}\n\n", plural(static_cast<int64_t>(figures.ranks.size()), "rank"),
                                   plural(figures.nodes, "node"), figures.ranks.front().device);
    text += ranks_text(figures) + "\n" + links_text(figures, true) + links_text(figures, false);
    if (figures.pairs_left_out > 0)
        text += fmt::format("{} of {} links were not measured: the time limit was reached\n\n", figures.pairs_left_out,
                            figures.pairs_left_out + static_cast<int64_t>(figures.pairs.size()));
    text += collectives_text(figures) + expected_text(report);
    const std::string times = report.measured == 1 ? "" : fmt::format(", parts {} times", report.measured);
    text += fmt::format("{} (measured in {:.1f} s{})\n", verdict_text(report), report.seconds, times);
    constexpr size_t most_findings = 40;
    for (size_t i = 0; i < report.findings.size() && i < most_findings; ++i)
        text += "  " + report.findings[i].text() + "\n";
    if (report.findings.size() > most_findings)
        text += fmt::format("  and {} more findings: --json lists all\n", report.findings.size() - most_findings);
    return text;
}

std::string preflight_json(const PreflightReport& report) {
    const PreflightFigures& figures = report.figures;
    const Json all = {{"fit", report.fit()},
                      {"compared_with", compared_with(report)},
                      {"seconds", report.seconds},
                      {"measured", report.measured},
                      {"nodes", figures.nodes},
                      {"expected", expected_json(report)},
                      {"findings", list_of(report.findings)},
                      {"ranks", list_of(figures.ranks)},
                      {"pairs", list_of(figures.pairs)},
                      {"pairs_left_out", figures.pairs_left_out},
                      {"collectives", list_of(figures.collectives)}};
    return message_text(all) + "\n";
}

}  // namespace orrery
