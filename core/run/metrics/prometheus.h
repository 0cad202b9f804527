#pragma once
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <string_view>

#include "base/files/atomic_file.h"
#include "run/metrics/step_metrics.h"

namespace orrery {

/// The newest numbers of a run in Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats), in a
/// file that node_exporter's textfile collector reads. Each time it takes the place of the one before as a whole, at
/// most once a second; what comes between is kept for the next.
class PrometheusFile {
public:
    /// `run`, `host`: labels beside rank="0", who writes it. Throws Fault::failed naming path and reason, as all
    /// writing does.
    PrometheusFile(std::string path, const std::string& run, const std::string& host);

    /// Allocates nothing once file and results have had their largest size.
    void step(const StepMetrics& metrics);
    /// The loss comes first.
    void evaluation(int64_t step, const std::vector<EvaluatedMean>& means);
    /// Writes what is kept, once a second has gone by.
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
    StepMetrics last_;  ///< the newest step, with `results_`
    std::vector<StepResult> results_;
    fmt::memory_buffer step_, evaluated_;  ///< lines of the newest of each
    Clock::time_point written_ = Clock::time_point::min();
    bool kept_ = false;  ///< the file lacks something
};

/// A value of a label, between its quotes.
std::string label_text(std::string_view value);

}  // namespace orrery
