#include "sim/local/local_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "orrery/error.h"

namespace orrery {
namespace {

using KernelKey = std::tuple<std::string, int, int>;
using WireKey = std::tuple<std::string, std::string, int64_t, int64_t>;

KernelKey key_of(const KernelCost& row) { return {spec_text(row.spec), row.threads, row.beside}; }
WireKey key_of(const WireCost& row) { return {row.transport, row.op, row.ranks, row.bytes}; }

/// Returns the mean of two times, weighted by their numbers of samples; a time without a number has one sample.
Measured mean_of(const Measured& a, const Measured& b) {
    const auto of_a = static_cast<double>(std::max<int64_t>(1, a.samples));
    const auto of_b = static_cast<double>(std::max<int64_t>(1, b.samples));
    Measured both{(a.seconds * of_a + b.seconds * of_b) / (of_a + of_b),
                  a.least_s,
                  {},
                  a.samples + b.samples,
                  a.in_turns && b.in_turns};
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

template <class Value>
void set(std::vector<std::pair<std::string, Value>>& all, const std::string& name, const Value& value) {
    std::erase_if(all, [&](const auto& one) { return one.first == name; });
    all.emplace_back(name, value);
}

/// Returns the factor by which sharing processors slows down a run's kernels: kernel time over processor time; if that
/// was not measured, threads over processors.
double turns_of(const CostTable& table, double ranks, double processors) {
    if (const double given = total_of(table, "processing"); given > 0) return total_of(table, "compute") / given;
    return ranks * std::max(1.0, fact_of(table, "threads", 1)) / processors;
}

KernelCost plain_kernel(const KernelCost& row, double ranks, double processors, double turns, bool in_turns) {
    KernelCost plain = row;
    const double at_once = std::max(1.0, std::floor(processors / std::max(1, row.threads)));
    plain.beside = static_cast<int>(std::min(ranks, at_once)) - 1;
    if (turns > 1) plain.time.seconds = std::max(row.time.least_s.value_or(0), row.time.seconds / turns);
    plain.time.spread.reset();
    plain.time.in_turns = in_turns;
    return plain;
}

WireCost plain_wire(const WireCost& row, bool in_turns) {
    WireCost plain = row;
    if (in_turns || row.op == "message") plain.time.seconds = row.time.least_s.value_or(row.time.seconds);
    plain.time.spread.reset();
    plain.time.in_turns = in_turns;
    plain.mean_s.reset();
    plain.axis.clear();
    return plain;
}

using Lines = std::vector<std::pair<std::string, std::string>>;

/// Returns the "name=value" lines of a machine's description without the names in `but`.
Lines lines_of(const std::string& machine, const std::set<std::string>& but) {
    Lines lines;
    const std::vector<std::string> all = split(machine, '\n');
    for (const std::string& line : all) {
        const std::string_view text = trim(line);
        const size_t equals = std::min(text.find('='), text.size());
        const std::string name(text.substr(0, equals));
        if (text.empty() || but.count(name) > 0) continue;
        lines.emplace_back(name, text.substr(std::min(equals + 1, text.size())));
    }
    return lines;
}

const std::string* value_of(const Lines& lines, const std::string& name) {
    for (const auto& [line, value] : lines)
        if (line == name) return &value;
    return nullptr;
}

std::string difference_of(const Lines& lines, const Lines& other, const std::string& where) {
    std::string first;
    int64_t more = -1;
    const auto differ = [&](const std::string& name, const std::string* a, const std::string* b) {
        if (more++ >= 0) return;
        first = name == "flags" ? "the processor has other flags"  // the description has only a hash of the flags
                                : fmt::format("{} {}, {} {}", name == "model name" ? "processor" : name,
                                              a ? *a : "not known", where, b ? *b : "not known");
    };
    for (const auto& [name, value] : lines) {
        const std::string* const b = value_of(other, name);
        if (!b || *b != value) differ(name, &value, b);
    }
    for (const auto& [name, value] : other)
        if (!value_of(lines, name)) differ(name, nullptr, &value);
    return more > 0 ? fmt::format("{}, and {} more", first, plural(more, "line")) : first;
}

void take_mean(KernelCost& to, const KernelCost& more) { to.time = mean_of(to.time, more.time); }
void take_mean(WireCost& to, const WireCost& more) {
    if (to.op == "message")
        to.time.seconds = std::min(to.time.seconds, more.time.seconds);
    else
        to.time = mean_of(to.time, more.time);
}

/// Whether a run had more threads than its host has processors.
bool took_turns(const CostTable& table) {
    const double ranks = fact_of(table, "ranks", 1) / fact_of(table, "hosts", 1);
    const double threads = ranks * fact_of(table, "threads", 1);
    return threads > fact_of(table, "processors", threads);
}

/// Removes rows measured with shared processors if any cost table has the transport or kernel without sharing.
int64_t without_turns(std::vector<CostTable>& tables) {
    const auto kernel = [](const KernelCost& row) { return std::pair(spec_text(row.spec), row.threads); };
    std::set<std::string> timed;
    std::set<std::pair<std::string, int>> kernels;
    for (const CostTable& table : tables) {
        for (const WireCost& row : table.wires)
            if (!row.time.in_turns) timed.insert(row.transport);
        for (const KernelCost& row : table.kernels)
            if (!row.time.in_turns) kernels.insert(kernel(row));
    }
    size_t gone = 0;
    for (CostTable& table : tables) {
        gone += std::erase_if(table.wires,
                              [&](const WireCost& row) { return row.time.in_turns && timed.count(row.transport) > 0; });
        gone += std::erase_if(
            table.kernels, [&](const KernelCost& row) { return row.time.in_turns && kernels.count(kernel(row)) > 0; });
    }
    return static_cast<int64_t>(gone);
}

}  // namespace

std::string spread_note(const CostTable& table) {
    int64_t wide = 0;
    double most = 0;
    std::string worst;
    const auto see = [&](const Measured& time, const auto& name) {
        const double spread = time.spread.value_or(0);
        wide += spread >= 1;
        if (spread <= most) return;
        most = spread;
        worst = name();
    };
    for (const KernelCost& row : table.kernels) see(row.time, [&] { return spec_text(row.spec); });
    for (const WireCost& row : table.wires)
        see(row.time, [&] { return fmt::format("{} over {}, {}", row.op, row.transport, bytes_text(row.bytes)); });
    if (wide == 0) return "";
    return fmt::format(
        "{} of {} vary widely between repetitions: their quartiles are a median or more apart (worst: {}, {:.1f} "
        "medians); predictions from them are rough: run orrery calibrate again while nothing else runs",
        wide, plural(std::ssize(table.kernels) + std::ssize(table.wires), "row"), worst, most);
}

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

bool same_machine(const std::string& a, const std::string& b) { return machine_key(a) == machine_key(b); }

std::string differences(const std::string& machine, const std::string& other, const std::string& where) {
    return difference_of(lines_of(machine, {}), lines_of(other, {}), where);
}

std::string other_machine(const std::string& machine, const std::string& here) {
    const std::set<std::string> but{"build", "threads"};  // names of lines about a program, not the machine
    const std::string found = difference_of(lines_of(machine, but), lines_of(here, but), "here");
    return found.empty() ? "" : "costs are of another machine: " + found;
}

CostTable plain_costs(const CostTable& table) {
    if (table.made_by != "run") return table;
    CostTable plain = table;
    plain.made_by = "calibrate";
    const double ranks = std::max(1.0, fact_of(table, "ranks", 1) / fact_of(table, "hosts", 1));
    const double processors = fact_of(table, "processors", std::ceil(ranks * fact_of(table, "threads", 1)));
    plain.kernels.clear();
    plain.wires.clear();
    std::vector<KernelCost> kernels;
    std::vector<WireCost> wires;
    const double turns = turns_of(table, ranks, processors);
    const bool in_turns = took_turns(table);
    for (const KernelCost& row : table.kernels)
        kernels.push_back(plain_kernel(row, ranks, processors, turns, in_turns));
    for (const WireCost& row : table.wires)
        if (row.time.seconds > 0) wires.push_back(plain_wire(row, in_turns));
    const auto mean = [](auto& to, const auto& more) { take_mean(to, more); };
    add_rows(plain.kernels, kernels, mean);
    add_rows(plain.wires, wires, mean);
    const double rest = total_of(table, "step") - total_of(table, "compute") - total_of(table, "communication") -
                        total_of(table, "waiting");
    plain.totals = {{"rest", std::max(0.0, rest)}};
    set(plain.facts, "processors", fmt::format("{}", processors));
    return plain;
}

CostTable joined_costs(const std::vector<CostTable>& tables) {
    if (tables.empty()) throw Error("no table of measured costs");
    std::vector<CostTable> plain = tables;
    without_turns(plain);
    CostTable all = plain.front();
    for (size_t i = 1; i < plain.size(); ++i) {
        const CostTable& more = plain[i];
        if (more.device != all.device)
            throw Error(fmt::format("tables of different devices, \"{}\" and \"{}\", cannot be one table of a machine",
                                    all.device, more.device));
        const auto later = [](auto& to, const auto& row) { to = row; };
        add_rows(all.kernels, more.kernels, later);
        add_rows(all.wires, more.wires, later);
        for (const auto& [name, seconds] : more.totals) set(all.totals, name, seconds);
        for (const auto& [name, value] : more.facts) set(all.facts, name, value);
        all.machine = more.machine;
    }
    return all;
}

CostTable remeasured(const CostTable& kept, const CostTable& fresh) {
    CostTable all = joined_costs({plain_costs(kept), fresh});
    all.facts = fresh.facts;
    all.notes = fresh.notes;
    return all;
}

CostTable refitted(const CostTable* kept, const std::vector<CostTable>& runs) {
    if (runs.empty()) throw Error("no run to take costs from");
    std::set<std::pair<std::string, std::string>> timed;
    if (kept)
        for (const WireCost& row : kept->wires)
            if (row.processor_s) timed.emplace(row.transport, row.op);  // calibrated: no run measures processor time
    CostTable measured;
    double rest = 0;
    std::vector<CostTable> all;
    for (const CostTable& run : runs) all.push_back(plain_costs(run));
    if (kept) all.push_back(plain_costs(*kept));
    const int64_t in_turns = without_turns(all);
    CostTable before;
    if (kept) {
        before = std::move(all.back());
        all.pop_back();
    }
    for (CostTable& plain : all) {
        std::erase_if(plain.wires, [&](const WireCost& row) { return timed.count({row.transport, row.op}) > 0; });
        rest += total_of(plain, "rest") / static_cast<double>(runs.size());
        if (&plain == &all.front()) {
            measured = std::move(plain);
            continue;
        }
        if (plain.device != measured.device)
            throw Error(fmt::format("runs on different devices, \"{}\" and \"{}\", cannot be one table of a machine",
                                    measured.device, plain.device));
        const auto mean = [](auto& to, const auto& more) { take_mean(to, more); };
        add_rows(measured.kernels, plain.kernels, mean);
        add_rows(measured.wires, plain.wires, mean);
    }
    set(measured.totals, "rest", rest);
    std::erase_if(measured.facts, [](const auto& fact) {  // removes facts of one run, not of the machine
        return fact.first != "processors" && fact.first != "products" && fact.first != "host";
    });
    measured.notes.clear();
    if (in_turns > 0)
        measured.notes.push_back(
            fmt::format("{} left out: the ranks shared processors, and other rows have the kernel or the transport",
                        plural(in_turns, "row")));
    if (!kept) return measured;
    CostTable both = joined_costs({before, measured});
    both.notes = measured.notes;
    return both;
}

}  // namespace orrery
