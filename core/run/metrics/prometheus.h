#pragma once
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/files/atomic_file.h"
#include "run/metrics/step_metrics.h"

namespace orrery {

/// Keeps a file in Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats) with a run's newest
/// numbers, for node_exporter's textfile collector. The file is replaced as a whole, at most once a second; numbers
/// that come sooner are written the next time.
class PrometheusFile {
public:
    /// `run`, `host`: labels, in addition to rank="0", the rank that writes. The constructor and all writing throw
    /// Fault::failed naming path and reason.
    PrometheusFile(std::string path, const std::string& run, const std::string& host);

    /// Writes a step's numbers. Allocates nothing once file and results have had their largest size.
    void step(const StepMetrics& metrics);
    /// Writes an evaluation; the loss is the first of `means`.
    void evaluation(int64_t step, const std::vector<EvaluatedMean>& means, bool tokens = true);
    /// Waits until one second after the last write, then writes what is still buffered.
    void finish();

private:
    using Clock = std::chrono::steady_clock;

    bool due() const;
    void render(const StepMetrics& metrics);
    void head(fmt::memory_buffer& to, std::string_view name, std::string_view help, bool grows = false) const;
    void line(fmt::memory_buffer& to, std::string_view name, std::string_view labels, double value) const;
    void replace();

    AtomicFile file_;
    const std::string labels_;
    StepMetrics last_;  ///< the newest step; its results are in `results_`
    std::vector<StepResult> results_;
    fmt::memory_buffer step_, evaluated_;  ///< rendered lines of the newest step and evaluation
    Clock::time_point written_ = Clock::time_point::min();
    bool kept_ = false;  ///< whether the file lacks the newest numbers
};

/// Escapes a label's value, without quotes.
std::string label_text(std::string_view value);

}  // namespace orrery
