#include "trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "orrery/error.h"

namespace orrery {
namespace {

constexpr double most_s = 9e9;  // max time in seconds, as 64-bit nanoseconds hold little more

/// Formats a time in microseconds, the unit of the trace format, with exactly three decimals.
std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string quoted_json(std::string_view text) { return message_text(Json(text)); }

std::string text_of(const TraceSlice::Argument& argument) {
    if (const auto* whole = std::get_if<int64_t>(&argument)) return std::to_string(*whole);
    if (const auto* number = std::get_if<double>(&argument))
        return std::isfinite(*number) ? Json(*number).dump() : quoted_json(fmt::format("{}", *number));
    return quoted_json(std::get<std::string>(argument));
}

std::string metadata(std::string_view what, int64_t process, int64_t thread, std::string_view key,
                     std::string_view value) {
    const std::string tid = thread == 0 ? "" : fmt::format(R"(,"tid":{})", thread);
    return fmt::format(R"({{"ph":"M","name":"{}","pid":{}{},"args":{{"{}":{}}}}})", what, process, tid, key, value);
}

}  // namespace

TraceWriter::TraceWriter(std::ostream& out, const std::vector<std::pair<std::string, std::string>>& about) : out_(out) {
    out_ << R"({"displayTimeUnit":"ns","otherData":{)";
    for (size_t i = 0; i < about.size(); ++i)
        out_ << (i == 0 ? "" : ",") << quoted_json(about[i].first) << ":" << quoted_json(about[i].second);
    out_ << R"(},"traceEvents":[)";
}

void TraceWriter::event(std::string_view json) {
    out_ << (first_ ? "\n" : ",\n") << json;
    first_ = false;
}

void TraceWriter::process(int64_t process, std::string_view name) {
    event(metadata("process_name", process, 0, "name", quoted_json(name)));
    event(metadata("process_sort_index", process, 0, "sort_index", std::to_string(process)));
}

void TraceWriter::lane(int64_t process, const std::string& name) { lane_of(process, name); }

TraceWriter::Lane& TraceWriter::lane_of(int64_t process, const std::string& name) {
    const auto [found, made] = lanes_.try_emplace({process, name});
    Lane& lane = found->second;
    if (!made) return lane;
    lane.id = static_cast<int64_t>(lanes_.size());
    event(metadata("thread_name", process, lane.id, "name", quoted_json(name)));
    event(metadata("thread_sort_index", process, lane.id, "sort_index", std::to_string(lane.id)));
    return lane;
}

/// Returns start and end of a slice in ns, each rounded on its own, so that adjacent slices stay adjacent. If rounding
/// makes slices overlap by 1 ns, removes the overlap.
std::pair<int64_t, int64_t> TraceWriter::place(Lane& lane, const TraceSlice& slice) {
    if (!std::isfinite(slice.start) || !std::isfinite(slice.duration) || slice.start < 0 || slice.duration < 0 ||
        slice.start + slice.duration > most_s)
        throw Error(fmt::format("trace: invalid time of slice {} on {} of process {}: start {} s, duration {} s",
                                slice.name, slice.lane, slice.process, slice.start, slice.duration),
                    Fault::failed);
    const auto ns = [](double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); };
    int64_t begin = ns(slice.start), end = ns(slice.start + slice.duration);
    while (!lane.open.empty() && lane.open.back().first <= begin) lane.open.pop_back();
    if (!lane.open.empty() && lane.open.back().first == begin + 1 && end > begin + 1) {
        begin += 1;
        while (!lane.open.empty() && lane.open.back().first <= begin) lane.open.pop_back();
    }
    // A bar with an arrow is at least 1 ns long, since viewers draw no arrow at a bar of length zero.
    if (slice.end != FlowEnd::none) end = std::max(end, begin + 1);
    const bool inside = lane.open.empty() || end <= lane.open.back().first;
    if (begin < lane.begun || !inside)
        throw Error(fmt::format("trace: slice {} on {} of process {}, {} to {} ns, is out of order or overlaps {}",
                                slice.name, slice.lane, slice.process, begin, end,
                                lane.open.empty() ? fmt::format("the slice that began at {} ns", lane.begun)
                                                  : fmt::format("{}, which ends at {} ns", lane.open.back().second,
                                                                lane.open.back().first)),
                    Fault::failed);
    lane.begun = begin;
    lane.open.emplace_back(end, slice.name);
    return {begin, end};
}

void TraceWriter::slice(const TraceSlice& slice) {
    Lane& lane = lane_of(slice.process, slice.lane);
    const auto [begin, end] = place(lane, slice);
    std::string arguments;
    for (const auto& [name, value] : slice.arguments)
        arguments += fmt::format("{}{}:{}", arguments.empty() ? "" : ",", quoted_json(name), text_of(value));
    event(fmt::format(R"({{"ph":"X","name":{},"cat":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
                      quoted_json(slice.name), quoted_json(slice.category), slice.process, lane.id, microseconds(begin),
                      microseconds(end - begin), arguments));
    if (slice.end == FlowEnd::none) return;
    // The arrow goes from the start of the send to the last nanosecond of the receive: a receive may start long before
    // its send, and viewers drop arrows that point back in time.
    const bool from = slice.end == FlowEnd::from;
    event(fmt::format(R"({{"ph":"{}","name":"message","cat":"message","id":{},"pid":{},"tid":{},"ts":{}{}}})",
                      from ? "s" : "f", slice.flow, slice.process, lane.id, microseconds(from ? begin : end - 1),
                      from ? "" : R"(,"bp":"e")"));
}

void TraceWriter::finish() {
    out_ << "\n]}\n";
    out_.flush();
}

}  // namespace orrery
