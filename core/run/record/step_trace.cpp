#include "run/record/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "base/files/result_file.h"
#include "base/json.h"
#include "base/text.h"
#include "run/control/address.h"
#include "run/record/clock_offset.h"

namespace orrery {
namespace {

using Clock = std::chrono::steady_clock;

int64_t ns_of(Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}
Clock::time_point at_ns(int64_t ns) {
    return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::nanoseconds(ns)));
}

Json json_of(const Interval& when) { return {ns_of(when.begin), ns_of(when.end)}; }
Interval interval_of(const Json& json) { return {at_ns(json.at(0).get<int64_t>()), at_ns(json.at(1).get<int64_t>())}; }

void shift(Interval& when, int64_t ns) {
    when.begin += std::chrono::nanoseconds(ns);
    when.end += std::chrono::nanoseconds(ns);
}

bool was(const Interval& when) { return when.begin != when.end; }

constexpr const char* step_lane = "step";

/// Name of a span in the trace; "" for the span of an instruction, which has the instruction's name.
std::string name_of(StepRecord::What what) {
    switch (what) {
        case StepRecord::What::inputs: return "copy inputs";
        case StepRecord::What::end: return "wait for the end";
        case StepRecord::What::captured: return "captured step";
        case StepRecord::What::copied: return "wait for the copy of a save";
        case StepRecord::What::work:
        case StepRecord::What::wait: break;
    }
    return "";
}

std::string category_of(StepRecord::What what) {
    return what == StepRecord::What::end || what == StepRecord::What::copied ? "waiting" : "compute";
}

/// Says which bars of a trace show only when the host launched work; "": none.
std::string host_side(Session& session, const Executor& executor) {
    std::string text;
    if (executor.captured())
        text = "the step is captured: one launch, in which nothing is told apart; ";
    else if (session.device().native(0))
        text = "kernels are queued on the device: bars show when the host launched them; ";
    for (const auto& [axis, contract] : session.compiled().contracts)
        if (contract.queued) text += fmt::format("messages of {} are queued on the device, too; ", axis);
    return text.empty() ? "" : text.substr(0, text.size() - 2);
}

/// Writes the traces of all ranks to `file`; `slices`: number of written slices.
void write_file(Session& session, const Executor& executor, const std::vector<RankTrace>& ranks,
                const std::string& file, int64_t& slices) {
    const Plan& plan = executor.plan();
    int64_t origin = ns_of(ranks.front().traced.whole.begin);
    for (const RankTrace& rank : ranks) origin = std::min(origin, ns_of(rank.traced.whole.begin));
    std::vector<std::pair<std::string, std::string>> about = {
        {"program", plan.program.name},
        {"step", std::to_string(ranks.front().traced.step)},
        {"mesh", plan.mesh.text()},
        {"made by", "orrery run"},
    };
    if (const std::string only = host_side(session, executor); !only.empty())
        about.emplace_back("host side only", only);
    std::ostringstream out;
    TraceWriter writer(out, about);
    PlanSlices plan_slices(plan);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        const auto process = static_cast<int64_t>(rank);
        const RankTrace& trace = ranks[rank];
        const std::string clock =
            trace.clock_error_ns == 0 ? "" : fmt::format(", clock within {} us", (trace.clock_error_ns + 999) / 1000);
        writer.process(process, fmt::format("rank {} on {}{}", rank, trace.host, clock));
        writer.lane(process, step_lane);
        writer.lane(process, PlanSlices::compute_lane);
        for (const TraceSlice& slice : slices_of(plan_slices, plan, process, trace, origin)) {
            writer.slice(slice);
            ++slices;
        }
    }
    writer.finish();
    write_result(file, out.view());
}

}  // namespace

std::string encode(const RankTrace& trace) {
    const TracedStep& t = trace.traced;
    Json spans = Json::array(), beside = Json::array();
    for (const StepRecord::Span& span : t.record.spans)
        spans.push_back(
            {static_cast<int>(span.what), span.position, span.awaited, ns_of(span.time.begin), ns_of(span.time.end)});
    for (size_t position = 0; position < t.record.beside.size(); ++position)
        if (const Interval& when = t.record.beside[position]; was(when))
            beside.push_back({position, ns_of(when.begin), ns_of(when.end)});
    return message_text({{"host", trace.host},
                         {"clock_error", trace.clock_error_ns},
                         {"step", t.step},
                         {"whole", json_of(t.whole)},
                         {"data", json_of(t.data)},
                         {"issues", t.record.beside.size()},
                         {"spans", std::move(spans)},
                         {"beside", std::move(beside)}});
}

RankTrace decode_rank_trace(std::string_view text) {
    const Json json = parse_json(text, {});
    RankTrace trace;
    trace.host = json.at("host").get<std::string>();
    trace.clock_error_ns = json.at("clock_error").get<int64_t>();
    TracedStep& t = trace.traced;
    t.step = json.at("step").get<int64_t>();
    t.whole = interval_of(json.at("whole"));
    t.data = interval_of(json.at("data"));
    for (const Json& span : json.at("spans"))
        t.record.spans.push_back({static_cast<StepRecord::What>(span.at(0).get<int>()),
                                  span.at(1).get<int64_t>(),
                                  span.at(2).get<int64_t>(),
                                  {at_ns(span.at(3).get<int64_t>()), at_ns(span.at(4).get<int64_t>())}});
    t.record.beside.resize(json.at("issues").get<size_t>());
    for (const Json& when : json.at("beside"))
        t.record.beside.at(when.at(0).get<size_t>()) = {at_ns(when.at(1).get<int64_t>()),
                                                        at_ns(when.at(2).get<int64_t>())};
    return trace;
}

std::vector<TraceSlice> slices_of(PlanSlices& slices, const Plan& plan, int64_t rank, const RankTrace& trace,
                                  int64_t origin_ns) {
    const RankClass& c = plan.class_of(rank);
    const TracedStep& t = trace.traced;
    std::vector<TraceSlice> all;
    const auto add = [&](TraceSlice slice, const Interval& when) {
        slice.process = rank;
        slice.start = static_cast<double>(ns_of(when.begin) - origin_ns) * 1e-9;
        slice.duration = static_cast<double>(ns_of(when.end) - ns_of(when.begin)) * 1e-9;
        all.push_back(std::move(slice));
    };
    add({rank, step_lane, fmt::format("step {}", t.step), "step"}, t.whole);
    if (was(t.data)) add({rank, step_lane, "wait for the batch", "waiting"}, t.data);
    for (const StepRecord::Span& span : t.record.spans) {
        if (span.what == StepRecord::What::wait) {
            add(slices.wait(rank, issued_at(c, span.position), issued_at(c, span.awaited)), span.time);
        } else if (span.what != StepRecord::What::work) {
            add({rank, PlanSlices::compute_lane, name_of(span.what), category_of(span.what)}, span.time);
        } else {
            TraceSlice slice = slices.of(rank, issued_at(c, span.position));
            const Interval& beside = t.record.beside.at(static_cast<size_t>(span.position));
            if (was(beside)) {  // the communication thread ran the instruction; this thread only passed it on
                add(slice, beside);
                slice.lane = PlanSlices::compute_lane;
                slice.name = "hand over " + slice.name;
            }
            add(std::move(slice), span.time);
        }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const TraceSlice& a, const TraceSlice& b) { return a.start < b.start; });
    return all;
}

void check_trace(const std::string& file, int64_t trace_step, int64_t steps, bool writes) {
    if (file.empty()) return;
    if (trace_step > steps)
        throw Error(
            fmt::format("run.trace_step = {}, but the run ends at step {}\n  set an earlier step, or leave it "
                        "out for step 10",
                        trace_step, steps));
    if (writes) require_writable("run.trace =", file);
}

std::vector<std::string> write_step_trace(Session& session, const Executor& executor, const TracedStep& traced,
                                          const std::string& file) {
    RankTrace mine{host_name(), 0, traced};
    if (Rendezvous* rendezvous = session.rendezvous()) {
        const std::vector<std::string> clocks = session.exchange("clocks of a trace", clock_name());
        const auto now = [] { return ns_of(Clock::now()); };
        const std::string name = fmt::format("trace/{}/{}", session.job().session, traced.step);
        const ClockOffset offset = clock_offset(*rendezvous, name, session.job().rank, clocks, session.timeout(), now);
        mine.clock_error_ns = offset.error_ns;
        shift(mine.traced.whole, offset.ns);
        shift(mine.traced.data, offset.ns);
        for (StepRecord::Span& span : mine.traced.record.spans) shift(span.time, offset.ns);
        for (Interval& beside : mine.traced.record.beside) shift(beside, offset.ns);
    }
    const std::vector<std::string> texts = session.to_first("trace", encode(mine), WaitLimit::files);
    if (texts.empty()) return {};
    std::vector<RankTrace> ranks;
    for (const std::string& text : texts) ranks.push_back(decode_rank_trace(text));
    int64_t slices = 0;
    std::string problem;
    try {
        write_file(session, executor, ranks, file, slices);
    } catch (const Error& error) {
        problem = error.what();
    }
    if (!problem.empty()) return {fmt::format("no trace of step {}: {}", traced.step, problem)};
    std::vector<std::string> said = {
        fmt::format("trace of step {}: {}, {}; open it in ui.perfetto.dev", traced.step, file, plural(slices, "bar"))};
    if (const std::string only = host_side(session, executor); !only.empty()) said.push_back("  " + only);
    return said;
}

}  // namespace orrery
