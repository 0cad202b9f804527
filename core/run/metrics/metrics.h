#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "run/metrics/event_file.h"
#include "run/metrics/kept_lines.h"
#include "run/metrics/prometheus.h"
#include "run/metrics/step_metrics.h"

namespace orrery {

/// Paths to which a run's metrics are written; "": not written.
struct MetricsPlaces {
    std::string lines;            ///< path of metrics.jsonl
    std::string events = {};      ///< folder of TensorBoard event files
    std::string prometheus = {};  ///< file in Prometheus' text format
    std::string run = {};         ///< value of the label "run" in the Prometheus file
};

/// Writes a run's metrics: step lines and a progress bar on a terminal, metrics.jsonl, TensorBoard event files and a
/// Prometheus file. Only rank 0 has a MetricsWriter. Throws Fault::failed, naming path and reason, if a write fails.
class MetricsWriter {
public:
    MetricsWriter(MetricsPlaces places, std::FILE* terminal);
    ~MetricsWriter();
    MetricsWriter(const MetricsWriter&) = delete;

    /// Opens the files and drops lines of steps after `resumed_step`, which will run again. A crash or power cut before
    /// or during the call leaves metrics.jsonl unchanged.
    void resume(int64_t resumed_step);
    /// Prints the column heads of step lines. `scaled`: with the columns loss_scale and skipped.
    void header(bool scaled);
    /// Writes a step's metrics in less than 50 us, not counting the terminal and the Prometheus file, which is written
    /// at most once a second. Allocates no memory, except for a printed line, once lines have had their largest size.
    void step(const StepMetrics& metrics, bool print_line);
    /// Writes an evaluation's means, the loss first. A run that is restarted after its last step may evaluate that step
    /// again: equal means are only printed, different ones replace the old line.
    void evaluation(int64_t step, const std::vector<EvaluatedMean>& means);
    /// Prints a line without breaking the progress bar.
    void note(const std::string& line);
    /// Writes all buffered metrics.
    void finish();

private:
    void clear_bar();
    void bar(const StepMetrics& metrics);
    void write_line(const StepMetrics& metrics);
    void write_events(const StepMetrics& metrics);
    void write_evaluation(int64_t step, const Json& line);

    const MetricsPlaces places_;
    std::unique_ptr<AppendedFile> lines_;
    std::unique_ptr<EventFile> events_;
    std::unique_ptr<PrometheusFile> prometheus_;
    KeptLines kept_;  ///< lines of metrics.jsonl about the step resumed from
    int64_t resumed_ = 0;
    fmt::memory_buffer line_;
    std::FILE* terminal_;
    bool interactive_;
    bool bar_shown_ = false;
};

}  // namespace orrery
