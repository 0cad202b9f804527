#include "run/train/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/env.h"
#include "base/json.h"
#include "layout/messages/status_word.h"
#include "orrery/error.h"
#include "plan/host_places.h"

namespace orrery {
namespace {

/// JSON has neither NaN nor infinity: a skipped step and a diverged run write null there.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Gradients that overflowed have no norm: the step was skipped.
std::string norm_text(const StepMetrics& m) {
    if (m.skips) return "skipped";
    return std::isnan(m.grad_norm) ? "nan" : fmt::format("{:.4f}", m.grad_norm);
}

double mfu_of(const StepMetrics& m) {
    return m.peak_flops > 0 && m.seconds > 0 ? m.flops / m.seconds / m.peak_flops : 0;
}

/// Keeps the lines up to a step; later ones belong to work that was lost.
void trim(const std::string& path, int64_t last_step) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) return;
    const auto env = system_env();
    const std::string all = env->read_file(path);
    std::istringstream in(all);
    std::string kept, line;
    while (std::getline(in, line)) {
        const auto json = Json::parse(line, nullptr, false);
        const auto step = json.is_object() ? json.find("step") : json.end();
        if (step == json.end() || !step->is_number() || step->get<double>() > static_cast<double>(last_step)) continue;
        kept += line + "\n";
    }
    if (kept != all) env->replace_file(path, kept);
}

}  // namespace

bool has_loss_scale(const Program& program) {
    const auto state = program.find("loss_scale");
    return state && program.value(*state).role == Role::state && program.result("loss_scale");
}

std::vector<RecordedResult> recorded_results(const Program& program) {
    static const std::set<std::string> columns = {"loss_sum", "count", "grad_norm", "lr", std::string(status_name)};
    static const std::set<std::string> scaling = {"loss_scale", "skipped"};
    static const std::set<std::string> keys = {"step", "loss",   "tok/s",     "TFLOP/s",
                                               "MFU",  "memory", "eval_loss", "eval_tokens"};
    constexpr int64_t most_elements = small_result_bytes / 4;
    std::vector<RecordedResult> results;
    for (const Result& result : program.results) {
        if (columns.count(result.name) || (scaling.count(result.name) && has_loss_scale(program))) continue;
        const Value& value = program.value(result.value);
        if (keys.count(result.name))
            throw Error(value.origin,
                        fmt::format("a result is called {}, as a key of metrics.jsonl is\n  give it another name",
                                    result.name));
        RecordedResult& made = results.emplace_back(RecordedResult{result.name, ""});
        const auto& splits = value.layout.splits();
        const bool whole = std::all_of(splits.begin(), splits.end(), [](const auto& axes) { return axes.empty(); });
        if (value.type.dtype != DType::f32 || value.type.count() > most_elements || !whole)
            made.why_not = fmt::format(
                "result {} is {}{}: metrics.jsonl takes f32 of at most {} elements that lie whole "
                "on every rank; cast or sum it",
                result.name, value.type.text(), whole ? "" : ", split over ranks", most_elements);
    }
    return results;
}

void require_same_results(const Program& full, const Program& smaller) {
    const auto names = [](const Program& program) {
        std::set<std::string> all;
        for (const Result& result : program.results) all.insert(result.name);
        return all;
    };
    if (names(full) != names(smaller))
        throw Error(
            "the step of a smaller batch of the ramp records other results than the full one\n"
            "  let the optimizer record the same ones each time that it is called");
}

MetricsWriter::MetricsWriter(const std::string& path, std::FILE* terminal)
    : path_(path), terminal_(terminal), interactive_(::isatty(::fileno(terminal)) == 1) {}

void MetricsWriter::resume(int64_t resumed_step) {
    if (path_.empty()) return;
    std::error_code ignored;
    if (std::filesystem::is_fifo(path_, ignored))
        throw Error(
            fmt::format("cannot write {}: it is a named pipe, which would wait for a reader\n  remove it", path_),
            Fault::failed);
    trim(path_, resumed_step);
    file_ = std::fopen(path_.c_str(), "a");
    if (!file_) throw Error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)), Fault::failed);
}

void MetricsWriter::write(const std::string& line) {
    if (!file_) return;
    errno = 0;
    if (std::fprintf(file_, "%s\n", line.c_str()) < 0 || std::fflush(file_) != 0)
        throw Error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)), Fault::failed);
}

MetricsWriter::~MetricsWriter() {
    clear_bar();
    if (file_) std::fclose(file_);
}

void MetricsWriter::header(bool scaled) {
    note(fmt::format("{:>7} {:>9} {:>9} {:>9} {:>9} {:>8} {:>6} {:>9}{}", "step", "loss", "grad_norm", "lr", "tok/s",
                     "TFLOP/s", "MFU", "memory", scaled ? " loss_scale skipped" : ""));
}

void MetricsWriter::step(const StepMetrics& m, bool print_line) {
    const double tokens_per_s = m.seconds > 0 ? static_cast<double>(m.tokens) / m.seconds : 0;
    const double tflops = m.seconds > 0 ? m.flops / m.seconds / 1e12 : 0;
    if (file_) {
        Json line = {{"step", m.step},           {"loss", number(m.loss)},        {"grad_norm", number(m.grad_norm)},
                     {"lr", number(m.lr)},       {"tok/s", number(tokens_per_s)}, {"TFLOP/s", number(tflops)},
                     {"MFU", number(mfu_of(m))}, {"memory", m.memory_bytes}};
        if (m.scaled) line["loss_scale"] = number(m.loss_scale), line["skipped"] = m.skipped;
        for (const auto& [name, values] : m.results) {
            Json list = Json::array();
            for (const float value : values) list.push_back(number(static_cast<double>(value)));
            line[name] = values.size() == 1 ? list[0] : list;
        }
        write(line.dump());
    }
    if (print_line)
        note(fmt::format("{:>7} {:>9.4f} {:>9} {:>9.2e} {:>9.0f} {:>8.3f} {:>5.1f}% {:>5.0f} MiB{}", m.step, m.loss,
                         norm_text(m), m.lr, tokens_per_s, tflops, 100 * mfu_of(m),
                         static_cast<double>(m.memory_bytes) / (1 << 20),
                         m.scaled ? fmt::format(" {:>10.10g} {:>7}", m.loss_scale, m.skipped) : ""));
    if (interactive_) bar(m);
}

void MetricsWriter::evaluation(int64_t step, const std::vector<EvaluatedMean>& means) {
    const EvaluatedMean& loss = means.front();
    const auto tokens = static_cast<int64_t>(loss.count);
    std::string text = fmt::format("evaluation after step {}: {:.4f} nats per token over {} held-out tokens", step,
                                   loss.value(), tokens);
    Json line = {{"step", step}, {"eval_loss", number(loss.value())}, {"eval_tokens", tokens}};
    for (size_t i = 1; i < means.size(); ++i) {
        text += fmt::format(", {} {:.6g}", means[i].name, means[i].value());
        line[means[i].name] = number(means[i].value());
    }
    if (file_) write(line.dump());
    note(text);
}

void MetricsWriter::note(const std::string& line) {
    clear_bar();
    std::fprintf(terminal_, "%s\n", line.c_str());
    std::fflush(terminal_);
}

void MetricsWriter::clear_bar() {
    if (!bar_shown_) return;
    std::fprintf(terminal_, "\r\033[K");
    bar_shown_ = false;
}

void MetricsWriter::bar(const StepMetrics& m) {
    constexpr int width = 30;
    const int filled = m.steps > 0 ? static_cast<int>(width * m.step / m.steps) : 0;
    const double left_s = static_cast<double>(m.steps - m.step) * m.seconds;
    std::fprintf(terminal_, "\r\033[K[%s%s] %lld/%lld  %d:%02d left",
                 std::string(static_cast<size_t>(filled), '#').c_str(),
                 std::string(static_cast<size_t>(width - filled), '.').c_str(), static_cast<long long>(m.step),
                 static_cast<long long>(m.steps), static_cast<int>(left_s / 60), static_cast<int>(left_s) % 60);
    std::fflush(terminal_);
    bar_shown_ = true;
}

std::string breakdown_text(std::vector<TimeShare> shares, double total_seconds) {
    std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
    double named = 0;
    std::string text = "where the time went\n";
    for (const TimeShare& share : shares) {
        if (share.seconds < 0.001 * total_seconds) continue;  // joins the rest
        named += share.seconds;
        text += fmt::format("  {:<28} {:>9.3f} s {:>5.1f} %\n", share.what, share.seconds,
                            total_seconds > 0 ? 100 * share.seconds / total_seconds : 0);
    }
    const double rest = std::max(0.0, total_seconds - named);
    text += fmt::format("  {:<28} {:>9.3f} s {:>5.1f} %", "host, data and the rest", rest,
                        total_seconds > 0 ? 100 * rest / total_seconds : 0);
    return text;
}

int64_t resident_bytes() {
    std::ifstream in("/proc/self/statm");
    int64_t size = 0, resident = 0;
    in >> size >> resident;
    return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace orrery
