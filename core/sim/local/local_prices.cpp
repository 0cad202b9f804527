#include "sim/local/local_prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/suggest.h"
#include "base/text.h"
#include "orrery/error.h"
#include "sim/local/local_costs.h"

namespace orrery {
namespace {

constexpr ResourceId processors_id = 0;

/// Returns the bytes that each member of a collective sends, as a multiple of the collective's size S.
double sent(const std::string& op, double ranks) {
    if (op == "send") return 1;
    return (op == "all_reduce" ? 2 : 1) * (ranks - 1) / ranks;
}

std::map<AxisId, std::string> by_axis(const Plan& plan, const std::map<std::string, std::string>& transports) {
    std::map<AxisId, std::string> all;
    for (AxisId axis = 0; axis < plan.mesh.ids(); ++axis) {
        const std::string& name = plan.mesh.axis(axis).name;
        const auto found = transports.find(name.substr(0, name.find('+')));
        if (found != transports.end()) all[axis] = found->second;
    }
    if (!all.empty()) all[none] = all.begin()->second;
    return all;
}

MeasuredTable require_transports(std::vector<MeasuredTable::Row> rows,
                                 const std::map<std::string, std::string>& transports) {
    std::set<std::string> there;
    for (const MeasuredTable::Row& row : rows) there.insert(row.transport);
    for (const auto& [axis, transport] : transports)
        if (there.count(transport) == 0)
            throw Error(
                fmt::format("transport {} of axis {} was not measured{}\n  measure it: orrery calibrate --transports "
                            "{} -o {}.json, "
                            "and name the table: --table {}.json",
                            transport, axis, choices("measured", transport, {there.begin(), there.end()}), transport,
                            transport, transport));
    return MeasuredTable(std::move(rows));
}

}  // namespace

std::vector<MeasuredTable::Row> wire_rows(const CostTable& plain, double processors, Derived& derived) {
    std::vector<MeasuredTable::Row> rows;
    std::map<std::string, std::set<std::string>> there;
    // Rows measured with shared processors are used only if there are no others, since the simulation itself shares.
    const double measured_on = fact_of(plain, "processors", processors);
    const auto takes_turns = [&](const WireCost& cost) { return static_cast<double>(cost.ranks) > measured_on; };
    std::set<std::pair<std::string, std::string>> without_turns;
    for (const WireCost& cost : plain.wires)
        if (!takes_turns(cost)) without_turns.emplace(cost.transport, cost.op);
    for (const WireCost& cost : plain.wires) {
        if (!(cost.time.seconds > 0) || cost.bytes < 1 || cost.ranks < 2) continue;
        if (takes_turns(cost) && without_turns.count({cost.transport, cost.op}) > 0) continue;
        const auto members = static_cast<double>(cost.op == "message" ? 2 : cost.ranks);
        // Without a measurement of processor time, ranks are assumed to spin while they wait.
        const double busy = cost.processor_s ? *cost.processor_s * members : members * cost.time.seconds;
        const std::string op = cost.op == "message" ? "send" : cost.op;
        rows.push_back({cost.transport, op, op == "send" ? 2 : cost.ranks, cost.bytes, cost.time.seconds,
                        std::min(busy, processors * cost.time.seconds)});
        there[cost.transport].insert(op);
    }
    const std::vector<MeasuredTable::Row> measured = rows;
    for (const auto& [transport, ops] : there)
        for (const char* const op : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"}) {
            if (ops.count(op) > 0) continue;
            // Derives the op's times from the measured op with the closest traffic; a message's from that of two ranks.
            const std::vector<const char*> likest = {"all_gather", "reduce_scatter", "all_to_all", "all_reduce",
                                                     "send"};
            const auto from = std::find_if(likest.begin(), likest.end(), [&](const char* o) { return ops.count(o); });
            if (from == likest.end()) continue;
            for (const MeasuredTable::Row& row : measured) {
                if (row.transport != transport || row.op != *from) continue;
                if (std::string(op) == "send" && row.ranks != 2) continue;
                const auto ranks = static_cast<double>(row.ranks);
                const double times = sent(op, ranks) / sent(row.op, ranks);
                rows.push_back(
                    {transport, op, row.ranks, row.bytes, row.seconds * times, row.processor_seconds * times});
            }
            derived[{transport, op}] = *from;
        }
    return rows;
}

LocalPrices::LocalPrices(const CostTable& plain, const Plan& plan, const SharedHost& host,
                         const std::map<std::string, std::string>& transports)
    : kernels_(plain, plan.threads_per_rank, plan.mesh.ranks(), host.processors),
      threads_(std::max(1, plan.threads_per_rank)),
      crowd_(static_cast<ResourceId>(1 + 2 * plan.mesh.ranks())),
      wires_(require_transports(wire_rows(plain, host.processors, derived_), transports), host,
             by_axis(plan, transports)) {}

Demand LocalPrices::work(double alone_s, double crowding) const {
    Demand out;
    if (!(alone_s > 0)) return out;
    out.least_s = alone_s;
    out.loads.push_back({processors_id, alone_s * threads_});
    if (crowding > 1) out.loads.push_back({crowd_, alone_s * crowding / kernels_.at_once()});
    return out;
}

Demand LocalPrices::kernel(const KernelSpec& spec, int64_t) {
    const LocalPrice& price = kernels_.price(spec);
    return work(price.alone_s, price.crowding);
}

Demand LocalPrices::copy(int64_t bytes, int64_t) { return work(kernels_.copy_s(static_cast<double>(bytes)), 1); }

void LocalPrices::use(Opcode opcode, const Demand& priced) {
    const std::string op(name_of(opcode));
    const auto found = derived_.find({priced.how, op});
    if (found == derived_.end()) return;
    used_[priced.how + op] =
        fmt::format("{} by {} (from its {})", op == "send" ? "messages" : op, priced.how, found->second);
}

Demand LocalPrices::collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                               const std::vector<int64_t>& alike) {
    Demand priced = wires_.collective(opcode, axis, bytes, group, alike);
    use(opcode, priced);
    return priced;
}

Demand LocalPrices::message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) {
    Demand priced = wires_.message(axis, bytes, from, to, alike);
    use(Opcode::send, priced);
    return priced;
}

std::vector<std::string> LocalPrices::sources() const {
    std::vector<std::string> lines = {kernels_.sources()};
    if (std::string crowding = kernels_.crowding_text(); !crowding.empty()) lines.push_back(std::move(crowding));
    std::vector<std::string> derived;
    for (const auto& [key, text] : used_) derived.push_back(text);
    if (!derived.empty()) lines.push_back("not measured: " + join(derived, ", "));
    return lines;
}

}  // namespace orrery
