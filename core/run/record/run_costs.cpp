#include "run/record/run_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/env.h"
#include "base/json.h"
#include "base/processors.h"
#include "base/text.h"
#include "plan/access.h"
#include "run/control/address.h"

namespace orrery {
namespace {

using Kind = Executor::Time::Kind;

CallTimes without(const CallTimes& all, const CallTimes& first) {
    return {std::max(0.0, all.seconds - first.seconds), all.least, all.count - first.count};
}

void join(CallTimes& to, const CallTimes& more) {
    to.seconds += more.seconds;
    to.least = std::min(to.least, more.least);
    to.count += more.count;
}

double mean_of(const CallTimes& times) { return times.seconds / static_cast<double>(times.count); }

Measured measured(const CallTimes& times) { return {mean_of(times), times.least, {}, times.count}; }

/// Sums up the times of each distinct kernel over all ranks, in the order in which kernels are first added.
class Kernels {
public:
    void add(const KernelSpec& spec, const CallTimes& times) {
        const auto [found, made] = places_.try_emplace(spec_text(spec), rows_.size());
        if (made) rows_.emplace_back(spec, CallTimes{});
        join(rows_[found->second].second, times);
    }
    const std::vector<std::pair<KernelSpec, CallTimes>>& rows() const { return rows_; }

private:
    std::map<std::string, size_t> places_;
    std::vector<std::pair<KernelSpec, CallTimes>> rows_;
};

/// Times of one collective (axis, op, bytes) on all ranks of its groups.
struct Wire {
    CallTimes all;
    double least_mean = std::numeric_limits<double>::infinity();  ///< smallest of the ranks' mean times in seconds
};

std::map<std::string, std::string> transports_of(Session& session) {
    std::map<std::string, std::string> names;
    for (const auto& [axis, contract] : session.compiled().contracts)
        names[axis] = session.settings().transport_of(axis);
    return names;
}

Untimed untimed_in(Session& session) {
    Untimed out;
    if (session.main().captured())
        out.kernels = "the step is captured, one launch";
    else if (session.device().native(0))
        out.kernels = "they are queued on the device, the host sees only the launch";
    for (const auto& [axis, contract] : session.compiled().contracts)
        if (contract.queued || !out.kernels.empty())
            out.axes[axis] = contract.queued ? "its transport queues them on the device" : out.kernels;
    return out;
}

std::vector<std::pair<std::string, std::string>> facts_of(Session& session, const std::vector<RankCosts>& ranks) {
    const Plan& plan = session.main().plan();
    std::set<std::string> hosts;
    for (const RankCosts& rank : ranks) hosts.insert(rank.host);
    std::string transports;
    for (const auto& [axis, name] : transports_of(session))
        transports += fmt::format("{}{}={}", transports.empty() ? "" : " ", axis, name);
    return {{"program", plan.program.name},
            {"fingerprint", plan.fingerprint},
            {"mesh", plan.mesh.text()},
            {"ranks", std::to_string(ranks.size())},
            {"hosts", std::to_string(hosts.size())},
            {"processors", std::to_string(processors_of_host(session.job()))},
            {"threads", std::to_string(plan.threads_per_rank)},
            {"transports", transports},
            {"products", session.device().products().in_use},
            {"steps", std::to_string(ranks.front().steps)}};
}

}  // namespace

RankCosts costs_of(const Executor& executor) {
    RankCosts out;
    out.processor_s = executor.processor_seconds();
    for (const Executor::Cost& cost : executor.costs()) {
        CallTimes times = without(cost.all, cost.first);
        if (cost.beside.count > 0) times = without(cost.beside, cost.first_beside);
        if (times.count > 0) out.rows.push_back({cost.kind, cost.kernel, cost.opcode, cost.axis, cost.bytes, times});
    }
    return out;
}

std::string encode(const RankCosts& costs) {
    Json rows = Json::array();
    for (const RankCosts::Row& row : costs.rows)
        rows.push_back({static_cast<int>(row.kind), row.kernel, static_cast<int>(row.opcode), row.axis, row.bytes,
                        row.times.seconds, row.times.least, row.times.count});
    return message_text({{"host", costs.host},
                         {"steps", costs.steps},
                         {"step_s", costs.step_s},
                         {"processor_s", costs.processor_s},
                         {"rows", std::move(rows)}});
}

RankCosts decode_rank_costs(std::string_view text) {
    const Json json = parse_json(text, {});
    RankCosts costs{json.at("host").get<std::string>(), json.at("steps").get<int64_t>(),
                    json.at("step_s").get<double>(), json.at("processor_s").get<double>()};
    for (const Json& row : json.at("rows"))
        costs.rows.push_back({static_cast<Kind>(row.at(0).get<int>()),
                              row.at(1).get<int>(),
                              static_cast<Opcode>(row.at(2).get<int>()),
                              row.at(3).get<AxisId>(),
                              row.at(4).get<int64_t>(),
                              {row.at(5).get<double>(), row.at(6).get<double>(), row.at(7).get<int64_t>()}});
    return costs;
}

CostTable merge_costs(const Plan& plan, const std::vector<RankCosts>& ranks,
                      const std::map<std::string, std::string>& transports, const Untimed& untimed) {
    CostTable table;
    Kernels kernels;
    std::map<std::tuple<AxisId, std::string, int64_t>, Wire> wires;
    std::map<Kind, double> spent;
    std::map<std::string, int> on_host;
    int beside = 0;
    for (const RankCosts& rank : ranks) beside = std::max(beside, on_host[rank.host]++);
    double steps = 0, step_s = 0, processor_s = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        steps += static_cast<double>(ranks[rank].steps);
        step_s += ranks[rank].step_s * static_cast<double>(ranks[rank].steps);
        processor_s += ranks[rank].processor_s;
        for (const RankCosts::Row& row : ranks[rank].rows) {
            spent[row.kind] += row.times.seconds;
            if (row.kernel != none)
                kernels.add(plan.class_of(static_cast<int64_t>(rank)).kernels[static_cast<size_t>(row.kernel)],
                            row.times);
            if (row.axis == none || row.opcode == Opcode::send) continue;
            const std::string op(is_message(row.opcode) ? "message" : name_of(row.opcode));
            Wire& wire = wires[{row.axis, op, row.bytes}];
            join(wire.all, row.times);
            wire.least_mean = std::min(wire.least_mean, mean_of(row.times));
        }
    }
    if (untimed.kernels.empty())
        for (const auto& [spec, times] : kernels.rows())
            table.kernels.push_back({spec, plan.threads_per_rank, measured(times), beside});
    else
        table.notes.push_back("no kernels: " + untimed.kernels);
    for (const auto& [key, wire] : wires) {
        const auto& [axis, op, bytes] = key;
        const std::string& name = plan.mesh.axis(axis).name;
        const std::string part = name.substr(0, name.find('+'));
        if (untimed.axes.count(part)) continue;
        const auto transport = transports.find(part);
        WireCost row{transport == transports.end() ? "" : transport->second, op, plan.mesh.size(axis), bytes,
                     measured(wire.all)};
        row.mean_s = row.time.seconds;
        row.time.seconds = wire.least_mean;
        row.axis = name;
        table.wires.push_back(std::move(row));
    }
    for (const auto& [axis, why] : untimed.axes)
        table.notes.push_back(fmt::format("no communication of {}: {}", axis, why));
    if (steps > 0)
        table.totals = {{"step", step_s / steps},
                        {"compute", spent[Kind::compute] / steps},
                        {"communication", spent[Kind::communication] / steps},
                        {"waiting", spent[Kind::waiting] / steps}};
    if (steps > 0 && processor_s > 0) table.totals.emplace_back("processing", processor_s / steps);
    if (!(steps > 0)) table.notes.emplace_back("nothing was counted: there was no step behind the first");
    return table;
}

std::string write_run_costs(Session& session, int64_t steps, double step_s, const std::string& file) {
    RankCosts mine = costs_of(session.main());
    mine.host = host_name();
    mine.steps = steps;
    mine.step_s = step_s;
    std::vector<RankCosts> ranks;
    for (const std::string& text : session.to_first("costs", encode(mine), WaitLimit::files))
        ranks.push_back(decode_rank_costs(text));
    if (ranks.empty()) return "";
    CostTable table = merge_costs(session.main().plan(), ranks, transports_of(session), untimed_in(session));
    table.made_by = "run";
    table.device = session.settings().device;
    table.machine = machine_of(session.device());
    table.facts = facts_of(session, ranks);
    try {
        system_env()->replace_file(file, cost_table_text(table));
    } catch (const std::exception& problem) {
        return fmt::format("{} is not written: {}", file, problem.what());
    }
    return "";
}

}  // namespace orrery
