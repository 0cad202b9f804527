#pragma once
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/files/atomic_file.h"
#include "run/metrics/step_metrics.h"

namespace orrery {

/// Writes a run's newest metrics to a file in Prometheus' text format
/// (prometheus.io/docs/instrumenting/exposition_formats) for node_exporter's textfile collector. The file is replaced
/// as a whole, at most once a second; metrics that come sooner are written the next time.
class PrometheusFile {
public:
    /// `run`, `host`: values of labels, in addition to rank="0", the rank that writes. The constructor and all writing
    /// throw Fault::failed naming path and reason.
    PrometheusFile(std::string path, const std::string& run, const std::string& host);

    /// Writes a step's metrics. Returns whether the file was replaced; less than a second after the last attempt the
    /// metrics are kept for the next one. Allocates no memory once file and results have had their largest size.
    bool step(const StepMetrics& metrics);
    /// Writes an evaluation; the loss is the first of `means`. Returns whether the file was replaced.
    bool evaluation(int64_t step, const std::vector<EvaluatedMean>& means, bool nats = true);
    /// Waits until one second after the last write, then writes what is still buffered.
    bool finish();

private:
    using Clock = std::chrono::steady_clock;

    bool due() const;
    bool offer();
    void render(const StepMetrics& metrics);
    void head(fmt::memory_buffer& to, std::string_view name, std::string_view help, bool grows = false) const;
    void line(fmt::memory_buffer& to, std::string_view name, std::string_view labels, double value) const;
    void replace();

    AtomicFile file_;
    const std::string labels_;
    StepMetrics last_;  ///< metrics of the newest step; the values of `results` are in `results_`
    std::vector<StepResult> results_;
    fmt::memory_buffer step_, evaluated_;  ///< lines of the newest step, of the newest evaluation
    Clock::time_point written_ = Clock::time_point::min();
    bool kept_ = false;  ///< whether the file lacks the newest metrics
};

/// Escapes the value of a Prometheus label, without quotes.
std::string label_text(std::string_view value);

}  // namespace orrery
