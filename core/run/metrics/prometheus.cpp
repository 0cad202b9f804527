#include "run/metrics/prometheus.h"

#include <cmath>
#include <iterator>
#include <string_view>
#include <thread>

#include "base/files/result_file.h"

using namespace std::string_view_literals;

namespace orrery {
namespace {

constexpr std::chrono::seconds apart{1};

}  // namespace

std::string label_text(std::string_view value) {
    std::string text;
    for (const char c : value) {
        if (c == '\n') {
            text += "\\n";
            continue;
        }
        if (c == '\\' || c == '"') text += '\\';
        text += c;
    }
    return text;
}

// The temporary file's name does not end in .prom, so that node_exporter's collector ignores the file.
PrometheusFile::PrometheusFile(std::string path, const std::string& run, const std::string& host)
    : file_(std::move(path), ".new", 0644),
      labels_(fmt::format(R"(run="{}",host="{}",rank="0")", label_text(run), label_text(host))) {
    require_writable("metrics.prometheus", file_.path());
}

void PrometheusFile::head(fmt::memory_buffer& to, std::string_view name, std::string_view help, bool grows) const {
    fmt::format_to(std::back_inserter(to), "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, grows ? "counter" : "gauge");
}

void PrometheusFile::line(fmt::memory_buffer& to, std::string_view name, std::string_view labels, double value) const {
    fmt::format_to(std::back_inserter(to), "{}{{{}{}{}}} ", name, labels_, labels.empty() ? "" : ",", labels);
    if (std::isnan(value))
        to.append("NaN\n"sv);
    else if (std::isinf(value))
        to.append(value > 0 ? "+Inf\n"sv : "-Inf\n"sv);
    else
        fmt::format_to(std::back_inserter(to), "{}\n", value);
}

bool PrometheusFile::due() const { return written_ == Clock::time_point::min() || Clock::now() >= written_ + apart; }

bool PrometheusFile::offer() {
    kept_ = true;
    if (!due()) return false;
    replace();
    return true;
}

bool PrometheusFile::step(const StepMetrics& metrics) {
    last_ = metrics;
    results_.assign(metrics.results.begin(), metrics.results.end());
    last_.results = results_;
    return offer();
}

void PrometheusFile::render(const StepMetrics& metrics) {
    step_.clear();
    head(step_, "orrery_step", "Optimizer steps done.");
    line(step_, "orrery_step", "", static_cast<double>(metrics.step));
    head(step_, "orrery_steps", "Optimizer steps of the whole run.");
    line(step_, "orrery_steps", "", static_cast<double>(metrics.steps));
    for (const StepColumn& column : step_columns()) {
        if (!column.exists(metrics.has)) continue;
        head(step_, column.name, column.help, column.grows);
        line(step_, column.name, "", column.value(metrics));
    }
    if (!metrics.results.empty()) head(step_, "orrery_result", "Results that the script declares for a step.");
    for (const StepResult& result : metrics.results)
        for (size_t i = 0; i < result.values.size(); ++i)
            line(step_, "orrery_result", result.labels[i], result.values[i]);
}

bool PrometheusFile::evaluation(int64_t step, const std::vector<EvaluatedMean>& means, bool nats) {
    evaluated_.clear();
    const auto one = [&](std::string_view name, std::string_view help, double value) {
        head(evaluated_, name, help);
        line(evaluated_, name, "", value);
    };
    one("orrery_evaluation_step", "Step of the newest evaluation.", static_cast<double>(step));
    if (nats) {
        one("orrery_evaluation_loss_nats", "Loss on held-out data, nats per token.", means.front().value());
        one("orrery_evaluation_tokens", "Held-out tokens of an evaluation.", means.front().count);
    } else {
        one("orrery_evaluation_loss", "Loss on held-out data.", means.front().value());
        one("orrery_evaluation_count", "Count that an evaluation's loss is a mean over.", means.front().count);
    }
    if (means.size() > 1) head(evaluated_, "orrery_evaluation_result", "Further means over held-out data.");
    for (size_t i = 1; i < means.size(); ++i)
        line(evaluated_, "orrery_evaluation_result", fmt::format("name=\"{}\"", label_text(means[i].name)),
             means[i].value());
    return offer();
}

bool PrometheusFile::finish() {
    if (!kept_) return false;
    std::this_thread::sleep_until(written_ + apart);
    replace();
    return true;
}

void PrometheusFile::replace() {
    if (last_.step > 0) render(last_);
    written_ = Clock::now();  // also if the write fails: the next attempt then comes a second later
    try {
        file_.open();
        for (const fmt::memory_buffer* part : {&step_, &evaluated_}) file_.write({part->data(), part->size()});
        file_.close();
        file_.name();
    } catch (const Error& error) {
        throw Error(fmt::format("metrics.prometheus: {}", error.what()), error.fault());
    }
    kept_ = false;
}

}  // namespace orrery
