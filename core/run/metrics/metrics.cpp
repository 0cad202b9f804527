#include "run/metrics/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "run/control/address.h"

using namespace std::string_view_literals;

namespace orrery {
namespace {

/// A number as JSON; null for NaN and infinity, which JSON lacks: a skipped step and a diverged run have such numbers.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Appends the shortest text that reads back as the same number, with a fraction unless `whole`.
void append_number(fmt::memory_buffer& to, double value, bool whole) {
    if (!std::isfinite(value)) return to.append("null"sv);
    if (whole) {
        fmt::format_to(std::back_inserter(to), "{}", static_cast<int64_t>(value));
        return;
    }
    const size_t begin = to.size();
    fmt::format_to(std::back_inserter(to), "{}", value);
    if (std::string_view(to.data() + begin, to.size() - begin).find_first_of(".e") == std::string_view::npos)
        to.append(".0"sv);
}

/// Text of the gradient norm; a skipped step has none, since its gradients overflowed.
std::string norm_text(const StepMetrics& m) {
    if (!m.has.norm) return "";
    if (m.skips) return "skipped";
    return std::isnan(m.grad_norm) ? "nan" : fmt::format("{:.4f}", m.grad_norm);
}

/// Min width of a printed column of a result.
constexpr size_t result_width = 8;

/// The largest elements of the results that the line of a step shows.
std::string shown_text(std::span<const StepResult> results) {
    std::string text;
    for (const StepResult& result : results)
        if (result.shown)
            text += fmt::format(" {:>{}.4g}", *std::ranges::max_element(result.values),
                                std::max(result.name.size(), result_width));
    return text;
}

}  // namespace

MetricsWriter::MetricsWriter(MetricsPlaces places, std::FILE* terminal,
                             std::function<void(const std::string&)> progress)
    : places_(std::move(places)), terminal_(terminal), progress_(std::move(progress)) {}

MetricsWriter::~MetricsWriter() {
    if (progress_) progress_("");
}

void MetricsWriter::resume(int64_t resumed_step) {
    resumed_ = resumed_step;
    if (!places_.lines.empty()) {
        lines_ = std::make_unique<AppendedFile>(places_.lines);
        kept_ = trim_lines(places_.lines, resumed_step);
        lines_ = std::make_unique<AppendedFile>(places_.lines);  // opened again: trim_lines may have replaced the file
    }
    const bool told = !kept_.step.empty() || !kept_.evaluation.empty();
    if (!places_.events.empty()) {
        const double now = wall_time();
        events_ = std::make_unique<EventFile>(places_.events, now);
        // Makes metrics.jsonl and event files agree: a killed run may have written a step to only one of them.
        if (told)
            kept_.tell_again(*events_, resumed_step, now);
        else
            events_->start(now, resumed_step + 1);
    }
    if (!places_.prometheus.empty())
        prometheus_ = std::make_unique<PrometheusFile>(places_.prometheus, places_.run, host_name());
}

void MetricsWriter::header(const TrainedNumbers& has, std::span<const StepResult> results) {
    std::string more = has.scale ? " loss_scale skipped" : "";
    if (has.capacity) more += " capacity  again";
    for (const StepResult& result : results)
        if (result.shown) more += fmt::format(" {:>{}}", result.name, result_width);
    note(fmt::format("{:>7} {:>9} {:>9} {:>9} {:>9} {:>8} {:>6}{} {:>9}{}", "step", "loss", "grad_norm", "lr",
                     has.tokens ? "tok/s" : "samples/s", "TFLOP/s", "MFU", has.nominal ? " nominal" : "", "memory",
                     more));
}

void MetricsWriter::write_line(const StepMetrics& m) {
    line_.clear();
    fmt::format_to(std::back_inserter(line_), "{{\"step\":{}", m.step);
    for (const StepColumn& column : step_columns()) {
        if (!column.exists(m.has)) continue;
        fmt::format_to(std::back_inserter(line_), ",\"{}\":", column.key);
        append_number(line_, column.value(m), column.whole);
    }
    for (const StepResult& result : m.results) {
        const bool list = result.values.size() != 1;
        fmt::format_to(std::back_inserter(line_), ",{}:{}", result.key, list ? "[" : "");
        for (size_t i = 0; i < result.values.size(); ++i) {
            if (i > 0) line_.append(","sv);
            append_number(line_, result.values[i], false);
        }
        if (list) line_.append("]"sv);
    }
    line_.append("}\n"sv);
    write_to_lines(m.step, {line_.data(), line_.size()});
}

void MetricsWriter::write_events(const StepMetrics& m) {
    events_->begin(m.time, m.step);
    for (const StepColumn& column : step_columns())
        if (column.exists(m.has)) events_->add(column.tag, column.value(m));
    for (const StepResult& result : m.results)
        for (size_t i = 0; i < result.values.size(); ++i) events_->add(result.tags[i], result.values[i]);
    events_->end();
}

/// Calls `write`, which returns whether it has written. Its failure does not end the run. `told`: message about a
/// failure since the last successful write; later failures are not told.
template <class Write>
void MetricsWriter::go_on(std::string& told, const Write& write) {
    try {
        if (write() && !told.empty()) note("written again: " + std::exchange(told, ""));
    } catch (const Error& error) {
        if (!told.empty()) return;
        told = error.what();
        note(told + "; the run goes on");
    }
}

void MetricsWriter::write_to_lines(int64_t step, std::string_view line) {
    if (lines_->removed()) note(fmt::format("{} was removed: a new one begins with step {}", places_.lines, step));
    lines_->write(line);
}

void MetricsWriter::step(const StepMetrics& m, bool print_line) {
    // Event files are written before metrics.jsonl, since a resume repairs them from its lines.
    if (events_) go_on(events_failed_, [&] { return write_events(m), true; });
    if (lines_) write_line(m);
    if (prometheus_) go_on(prometheus_failed_, [&] { return prometheus_->step(m); });
    if (print_line) {
        const double rate = m.seconds > 0 ? 1 / m.seconds : 0;
        note(fmt::format(
            "{:>7} {:>9.4f} {:>9} {:>9} {:>9.0f} {:>8.3f} {:>5.1f}%{} {:>5.0f} MiB{}{}", m.step, m.loss, norm_text(m),
            m.has.rate ? fmt::format("{:.2e}", m.lr) : "",
            static_cast<double>(m.has.tokens ? m.tokens : m.samples) * rate, m.flops * rate / 1e12,
            m.peak_flops > 0 ? 100 * m.flops * rate / m.peak_flops : 0,
            m.has.nominal ? fmt::format(" {:>6.1f}%", 100 * m.flops * rate / m.nominal_flops) : "",
            static_cast<double>(m.memory_bytes) / (1 << 20),
            m.has.scale ? fmt::format(" {:>10.10g} {:>7}", m.loss_scale, m.skipped) : "",
            (m.has.capacity ? fmt::format(" {:>8g} {:>6}", m.capacity, m.again) : "") + shown_text(m.results)));
    }
    if (progress_) tell_progress(m);
}

void MetricsWriter::evaluation(int64_t step, const std::vector<EvaluatedMean>& means, bool nats) {
    const EvaluatedMean& loss = means.front();
    std::string text = fmt::format("evaluation after step {}: ", step);
    Json line = {{"step", step}, {"eval_loss", number(loss.value())}};
    if (nats) {
        const auto count = static_cast<int64_t>(loss.count);
        text += fmt::format("{:.4f} nats per token over {} held-out tokens", loss.value(), count);
        line["eval_tokens"] = count;
    } else {
        text += fmt::format("loss {:.4f}, a mean over held-out data of count {:.10g}", loss.value(), loss.count);
        line["eval_count"] = loss.count;
    }
    for (size_t i = 1; i < means.size(); ++i) {
        text += fmt::format(", {} {:.6g}", means[i].name, means[i].value());
        line[means[i].name] = number(means[i].value());
    }
    if (prometheus_) go_on(prometheus_failed_, [&] { return prometheus_->evaluation(step, means, nats); });
    line["time"] = wall_time();
    write_evaluation(step, line);
    note(text);
}

void MetricsWriter::write_evaluation(int64_t step, const Json& line) {
    const bool again = step == resumed_ && !kept_.evaluation.empty();
    if (again) {
        Json before = Json::parse(kept_.evaluation), now = line;
        for (Json* told : {&before, &now}) told->erase("time");
        if (before == now) return;
        kept_.evaluation = line.dump();
    }
    if (events_)
        go_on(events_failed_, [&] {
            if (again)
                kept_.tell_again(*events_, step, line["time"].get<double>());
            else
                tell_evaluation(*events_, line);
            return true;
        });
    if (lines_ && again && !lines_->removed()) {
        replace_evaluation(places_.lines, step, line.dump() + "\n");
        lines_ = std::make_unique<AppendedFile>(places_.lines);
    } else if (lines_) {
        write_to_lines(step, line.dump() + "\n");
    }
}

void MetricsWriter::finish() {
    if (prometheus_) go_on(prometheus_failed_, [&] { return prometheus_->finish(); });
}

void MetricsWriter::note(const std::string& line) {
    std::fprintf(terminal_, "%s\n", line.c_str());
    std::fflush(terminal_);
}

void MetricsWriter::tell_progress(const StepMetrics& m) {
    constexpr double weight = 0.1;
    const auto now = std::chrono::steady_clock::now();
    const double took =
        pace_s_ == 0 ? m.seconds : std::chrono::duration<double>(now - std::exchange(step_ended_, now)).count();
    step_ended_ = now;
    pace_s_ = pace_s_ == 0 ? took : pace_s_ + weight * (took - pace_s_);
    const auto left = static_cast<int64_t>(static_cast<double>(m.steps - m.step) * pace_s_);
    const int64_t hours = left / 3600, minutes = left / 60 % 60;
    progress_(fmt::format("step {} of {}, {} left, {:.0f} {}, loss {:.4f}", m.step, m.steps,
                          hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, left % 60)
                                    : fmt::format("{}:{:02}", minutes, left % 60),
                          m.seconds > 0 ? static_cast<double>(m.has.tokens ? m.tokens : m.samples) / m.seconds : 0,
                          m.has.tokens ? "tok/s" : "samples/s", m.loss));
}

}  // namespace orrery
