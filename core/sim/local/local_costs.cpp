#include "sim/local/local_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "orrery/error.h"

namespace orrery {
namespace {

using KernelKey = std::tuple<std::string, int, int>;
using WireKey = std::tuple<std::string, std::string, int64_t, int64_t>;

KernelKey key_of(const KernelCost& row) { return {spec_text(row.spec), row.threads, row.beside}; }
WireKey key_of(const WireCost& row) { return {row.transport, row.op, row.ranks, row.bytes}; }

/// Both by their samples; a table without counts has one each.
Measured mean_of(const Measured& a, const Measured& b) {
    const auto of_a = static_cast<double>(std::max<int64_t>(1, a.samples));
    const auto of_b = static_cast<double>(std::max<int64_t>(1, b.samples));
    Measured both{(a.seconds * of_a + b.seconds * of_b) / (of_a + of_b), a.least_s, {}, a.samples + b.samples};
    if (b.least_s) both.least_s = std::min(both.least_s.value_or(*b.least_s), *b.least_s);
    return both;
}

template <class Row, class Join>
void add_rows(std::vector<Row>& to, const std::vector<Row>& more, Join join) {
    std::map<decltype(key_of(more.front())), size_t> places;
    for (size_t i = 0; i < to.size(); ++i) places.emplace(key_of(to[i]), i);
    for (const Row& row : more) {
        const auto [place, fresh] = places.try_emplace(key_of(row), to.size());
        if (fresh)
            to.push_back(row);
        else
            join(to[place->second], row);
    }
}

void set_total(CostTable& table, const std::string& name, double seconds) {
    std::erase_if(table.totals, [&](const auto& total) { return total.first == name; });
    table.totals.emplace_back(name, seconds);
}

void set_fact(CostTable& table, const std::string& name, const std::string& value) {
    std::erase_if(table.facts, [&](const auto& fact) { return fact.first == name; });
    table.facts.emplace_back(name, value);
}

KernelCost plain_kernel(const KernelCost& row, double ranks, double processors) {
    KernelCost plain = row;
    const double at_once = std::max(1.0, std::floor(processors / std::max(1, row.threads)));
    plain.beside = static_cast<int>(std::min(ranks, at_once)) - 1;
    const double turns = ranks * std::max(1, row.threads) / processors;
    if (turns > 1) plain.time.seconds = std::max(row.time.least_s.value_or(0), row.time.seconds / turns);
    plain.time.spread.reset();
    return plain;
}

WireCost plain_wire(const WireCost& row, double ranks, double processors) {
    WireCost plain = row;
    const auto members = static_cast<double>(row.ranks);
    if (row.op == "message")
        plain.time.seconds = row.time.least_s.value_or(row.time.seconds);
    else
        plain.time.seconds *= std::max(members, processors) / std::max({ranks, members, processors});
    plain.time.spread.reset();
    plain.mean_s.reset();
    plain.axis.clear();
    return plain;
}

void take_mean(KernelCost& to, const KernelCost& more) { to.time = mean_of(to.time, more.time); }
void take_mean(WireCost& to, const WireCost& more) {
    if (to.op == "message")
        to.time.seconds = std::min(to.time.seconds, more.time.seconds);
    else
        to.time = mean_of(to.time, more.time);
}
template <class Row>
void take_later(Row& to, const Row& more) {
    to = more;
}

std::set<std::string> lines_of(const std::string& machine) {
    std::set<std::string> lines;
    const std::vector<std::string> all = split(machine, '\n');
    for (const std::string& line : all)
        if (!trim(line).empty()) lines.emplace(trim(line));
    return lines;
}

}  // namespace

double fact_of(const CostTable& table, const std::string& name, double otherwise) {
    for (const auto& [fact, value] : table.facts) {
        char* end = nullptr;
        const double number = std::strtod(value.c_str(), &end);
        if (fact == name && end != value.c_str() && *end == 0 && number > 0) return number;
    }
    return otherwise;
}

double total_of(const CostTable& table, const std::string& name) {
    for (const auto& [total, seconds] : table.totals)
        if (total == name) return seconds;
    return 0;
}

bool same_machine(const std::string& a, const std::string& b) { return lines_of(a) == lines_of(b); }

CostTable plain_costs(const CostTable& table) {
    if (table.made_by != "run") return table;
    CostTable plain = table;
    plain.made_by = "calibrate";
    const double ranks = std::max(1.0, fact_of(table, "ranks", 1) / fact_of(table, "hosts", 1));
    const double processors = fact_of(table, "processors", ranks * fact_of(table, "threads", 1));
    plain.kernels.clear();
    plain.wires.clear();
    std::vector<KernelCost> kernels;
    std::vector<WireCost> wires;
    for (const KernelCost& row : table.kernels) kernels.push_back(plain_kernel(row, ranks, processors));
    for (const WireCost& row : table.wires)
        if (row.time.seconds > 0) wires.push_back(plain_wire(row, ranks, processors));
    const auto mean = [](auto& to, const auto& more) { take_mean(to, more); };
    add_rows(plain.kernels, kernels, mean);
    add_rows(plain.wires, wires, mean);
    const double rest = total_of(table, "step") - total_of(table, "compute") - total_of(table, "communication") -
                        total_of(table, "waiting");
    plain.totals = {{"rest", std::max(0.0, rest)}};
    set_fact(plain, "processors", fmt::format("{}", processors));
    return plain;
}

CostTable joined_costs(const std::vector<CostTable>& plain) {
    if (plain.empty()) throw Error("no table of measured costs");
    CostTable all = plain.front();
    for (size_t i = 1; i < plain.size(); ++i) {
        const CostTable& more = plain[i];
        if (more.device != all.device)
            throw Error(fmt::format("tables of the devices \"{}\" and \"{}\" are no table of one machine", all.device,
                                    more.device));
        const auto later = [](auto& to, const auto& row) { take_later(to, row); };
        add_rows(all.kernels, more.kernels, later);
        add_rows(all.wires, more.wires, later);
        for (const auto& [name, seconds] : more.totals) set_total(all, name, seconds);
        for (const auto& [name, value] : more.facts) set_fact(all, name, value);
        all.machine = more.machine;
    }
    return all;
}

CostTable refitted(const CostTable* kept, const std::vector<CostTable>& runs) {
    if (runs.empty()) throw Error("no run to take costs from");
    std::set<std::string> timed;  // transports
    if (kept)
        for (const WireCost& row : kept->wires)
            if (row.op == "message") timed.insert(row.transport);
    CostTable measured;
    double rest = 0;
    for (const CostTable& run : runs) {
        CostTable plain = plain_costs(run);
        std::erase_if(plain.wires,
                      [&](const WireCost& row) { return row.op == "message" && timed.count(row.transport) > 0; });
        rest += total_of(plain, "rest") / static_cast<double>(runs.size());
        if (&run == &runs.front()) {
            measured = std::move(plain);
            continue;
        }
        if (plain.device != measured.device)
            throw Error(fmt::format("runs on the devices \"{}\" and \"{}\" are no table of one machine",
                                    measured.device, plain.device));
        const auto mean = [](auto& to, const auto& more) { take_mean(to, more); };
        add_rows(measured.kernels, plain.kernels, mean);
        add_rows(measured.wires, plain.wires, mean);
    }
    set_total(measured, "rest", rest);
    std::erase_if(measured.facts, [](const auto& fact) {  // of one run
        return fact.first != "processors" && fact.first != "products" && fact.first != "host";
    });
    measured.notes.clear();
    return kept ? joined_costs({plain_costs(*kept), measured}) : measured;
}

}  // namespace orrery
