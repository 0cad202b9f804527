#include "sim/cluster/measured_wires.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/suggest.h"

namespace orrery {

namespace {

std::string text_of(const MeasuredTable::Row& row) {
    return fmt::format("{} by {}, {} ranks, {} bytes", row.op, row.transport, row.ranks, row.bytes);
}

double number(const Json& row, const char* key) {
    const auto found = row.find(key);
    if (found == row.end() || !found->is_number()) throw Error(fmt::format("it has no number \"{}\"", key));
    return found->get<double>();
}

std::string text(const Json& row, const char* key) {
    const auto found = row.find(key);
    if (found == row.end() || !found->is_string()) throw Error(fmt::format("it has no text \"{}\"", key));
    return found->get<std::string>();
}

double sent(Opcode opcode, double bytes, int64_t ranks) {
    if (opcode == Opcode::send || opcode == Opcode::receive) return bytes;
    const double part = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    return bytes * part * (opcode == Opcode::all_reduce ? 2 : 1);
}

/// Returns y at x between two points, interpolated on logarithmic scales.
double between(double x, double x0, double y0, double x1, double y1) {
    if (y0 <= 0 || y1 <= 0) return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
    const double part = std::log(x / x0) / std::log(x1 / x0);
    return y0 * std::pow(y1 / y0, part);
}

/// Returns y at x beyond two points on the line through them; if the slope is not positive, returns y1 times x / x1.
double beyond(double x, double x0, double y0, double x1, double y1) {
    const double slope = (y1 - y0) / (x1 - x0);
    return slope > 0 ? y1 + slope * (x - x1) : y1 * x / x1;
}

}  // namespace

int64_t ring_steps(Opcode opcode, int64_t ranks) {
    if (opcode == Opcode::send || opcode == Opcode::receive) return 1;
    return (opcode == Opcode::all_reduce ? 2 : 1) * (ranks - 1);
}

MeasuredTable::MeasuredTable(std::vector<Row> rows) {
    for (const Row& row : rows) {
        if (row.ranks < 2 || row.bytes < 1 || !(row.seconds > 0) || !(row.processor_seconds >= 0))
            throw Error(fmt::format(
                "invalid measurement: {}: {} s and {} processor seconds\n  expected at least 2 ranks, 1 byte and times "
                "above 0",
                text_of(row), row.seconds, row.processor_seconds));
        curves_[{row.transport, row.op}][row.ranks][row.bytes] = {row.seconds, row.processor_seconds};
    }
}

MeasuredTable MeasuredTable::parse(std::string_view json, const std::string& name) {
    const Json rows = parse_json(json, Origin{"", name, 0, 0});
    if (!rows.is_array()) throw Error(Origin{"", name, 0, 0}, "expected a list of measurements");
    std::vector<Row> out;
    for (const Json& row : rows) {
        try {
            if (!row.is_object()) throw Error("it is no object");
            out.push_back({text(row, "transport"), text(row, "op"), static_cast<int64_t>(number(row, "ranks")),
                           static_cast<int64_t>(number(row, "bytes")), number(row, "seconds"),
                           number(row, "processor_seconds")});
        } catch (const Error& problem) {
            throw Error(Origin{"", name, 0, 0}, fmt::format("measurement {}: {}", out.size() + 1, problem.what()));
        }
    }
    return MeasuredTable(std::move(out));
}

MeasuredTable::Times MeasuredTable::on_curve(const Curve& curve, int64_t bytes) const {
    const auto above = curve.lower_bound(bytes);
    if (above != curve.end() && (above->first == bytes || above == curve.begin())) return above->second;
    const auto x = static_cast<double>(bytes);
    if (curve.size() == 1) return curve.begin()->second;
    const auto high = above == curve.end() ? std::prev(curve.end()) : above;
    const auto low = std::prev(high);
    const auto x0 = static_cast<double>(low->first), x1 = static_cast<double>(high->first);
    const auto along = above == curve.end() ? beyond : between;
    return {along(x, x0, low->second.seconds, x1, high->second.seconds),
            along(x, x0, low->second.processor_seconds, x1, high->second.processor_seconds)};
}

MeasuredTable::Times MeasuredTable::times(std::string_view transport, Opcode opcode, int64_t ranks,
                                          int64_t bytes) const {
    const Opcode asked = opcode == Opcode::receive ? Opcode::send : opcode;
    const auto found = curves_.find({std::string(transport), std::string(name_of(asked))});
    if (found == curves_.end()) {
        std::vector<std::string> there;
        for (const auto& [key, curves] : curves_) there.push_back(key.second + " by " + key.first);
        throw Error(fmt::format("{} by {} was not measured{}\n  measure it: orrery calibrate", name_of(asked),
                                transport, choices("measured", "", there)));
    }
    const std::map<int64_t, Curve>& by_ranks = found->second;
    auto nearest = by_ranks.upper_bound(ranks);
    nearest = nearest == by_ranks.begin() ? nearest : std::prev(nearest);
    const Times measured = on_curve(nearest->second, bytes);
    if (nearest->first == ranks) return measured;
    const Times least = nearest->second.begin()->second;
    const double steps =
        static_cast<double>(ring_steps(opcode, ranks)) / static_cast<double>(ring_steps(opcode, nearest->first));
    const double more = sent(opcode, 1, ranks) / sent(opcode, 1, nearest->first);
    const double members = asked == Opcode::send ? 1 : static_cast<double>(ranks) / static_cast<double>(nearest->first);
    const auto scaled = [&](double all, double latency) {
        latency = std::min(latency, all);
        return latency * steps + (all - latency) * more;
    };
    return {scaled(measured.seconds, least.seconds),
            scaled(measured.processor_seconds, least.processor_seconds) * members};
}

MeasuredWires::MeasuredWires(MeasuredTable table, const SharedHost& host, std::map<AxisId, std::string> transports)
    : table_(std::move(table)), host_(host), transports_(std::move(transports)) {}

/// Returns what an operation needs without links: fixed time, and the processors' load of `groups` concurrent groups.
Demand MeasuredWires::demand(Opcode opcode, AxisId axis, int64_t bytes, int64_t ranks, int64_t groups) const {
    const auto own = transports_.find(axis);
    const std::string& transport = own == transports_.end() ? transports_.at(none) : own->second;
    const MeasuredTable::Times times = table_.times(transport, opcode, ranks, bytes);
    Demand out;
    out.how = transport;
    out.fixed_s = std::max(0.0, times.seconds - times.processor_seconds / host_.processors);
    if (host_.link_bytes_s > 0) out.fixed_s += static_cast<double>(ring_steps(opcode, ranks)) * host_.link_latency_s;
    out.loads.push_back({0, times.processor_seconds * static_cast<double>(groups)});
    return out;
}

Demand MeasuredWires::collective(Opcode opcode, AxisId axis, int64_t bytes, const std::vector<int64_t>& group,
                                 const std::vector<int64_t>& alike) {
    const auto ranks = static_cast<int64_t>(group.size());
    if (ranks < 2 || bytes == 0) return {};
    const int64_t groups = std::max<int64_t>(1, static_cast<int64_t>(alike.size()) / ranks);
    Demand out = demand(opcode, axis, bytes, ranks, groups);
    if (host_.link_bytes_s <= 0) return out;
    const double each = sent(opcode, static_cast<double>(bytes), ranks);
    for (const int64_t rank : group) {
        out.loads.push_back({static_cast<ResourceId>(1 + 2 * rank), each});
        out.loads.push_back({static_cast<ResourceId>(2 + 2 * rank), each});
    }
    return out;
}

Demand MeasuredWires::message(AxisId axis, int64_t bytes, int64_t from, int64_t to, const std::vector<int64_t>& alike) {
    if (from == to || bytes == 0) return {};
    const auto messages = std::max<int64_t>(1, static_cast<int64_t>(alike.size()));
    Demand out = demand(Opcode::send, axis, bytes, 2, messages);
    if (host_.link_bytes_s <= 0) return out;
    out.loads.push_back({static_cast<ResourceId>(1 + 2 * from), static_cast<double>(bytes)});
    out.loads.push_back({static_cast<ResourceId>(2 + 2 * to), static_cast<double>(bytes)});
    return out;
}

}  // namespace orrery
